"""Requests, answers and books that no server was asked for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fourstroke.common.types import SUPERVISOR, State
from fourstroke.ipc.board import Board, board_bytes
from fourstroke.ipc.segment import BOARD, Segment, owner_tag
from fourstroke.launch.bench.record import Record
from fourstroke.launch.chaos.asks import Ask
from fourstroke.launch.chaos.load import Heard
from fourstroke.launch.completions import Completion

NAMES = (SUPERVISOR, "scheduler0", "executor0", "ingest0")


def made_ask(name: str = "greedy", streamed: bool = True) -> Ask:
    body: dict[str, Any] = {"model": "tiny", "prompt": name, "max_tokens": 4}
    return Ask(name, "/v1/completions", body, streamed)


def made_heard(answer: Completion | None, *moments_s: float, error: str | None = None, ask: Ask | None = None) -> Heard:
    """A request that was heard of at these times."""
    times = moments_s or (0.0,)
    return Heard(ask or made_ask(), Record(times[0], times[-1], tuple(times), 1, 1, error), answer)


@contextmanager
def made_board() -> Iterator[Board]:
    """The board of a server whose launcher is this process; everybody is ready and has nothing to do."""
    segment = Segment.create(owner_tag(), BOARD, board_bytes(len(NAMES)))
    try:
        board = Board(segment.memory, NAMES)
        for row in board.rows.values():
            row.enter(State.READY)
        yield board
    finally:
        segment.unlink()
