"""The books of a server: what its board says, and what it holds."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from fourstroke.common.types import SUPERVISOR, State
from fourstroke.ipc.board import COLUMNS, Board
from fourstroke.launch.chaos.books import _NOTHING_LEFT, Books, Holdings, leaks

from .made import NAMES, made_board


@pytest.fixture
def board() -> Iterator[Board]:
    with made_board() as board:
        yield board


def test_rest(board: Board) -> None:
    """A server that is ready and has nothing to do is at rest."""
    books = Books(os.getpid(), NAMES)
    assert books.unrest() == []
    assert SUPERVISOR not in books.names


@pytest.mark.parametrize("role, column", [(role, column) for role, some in _NOTHING_LEFT.items() for column in some])
def test_unrest(board: Board, role: str, column: str) -> None:
    """Whatever is left of a request is told, with its name; so are they all names of columns."""
    assert column in {known.name for known in COLUMNS[role]}
    board.row(f"{role}0")[column] = 3
    assert Books(os.getpid(), NAMES).unrest() == [f"{role}0: {column} is 3"]


def test_blocks_states_and_frames(board: Board) -> None:
    """KV blocks that somebody has, a process that is not ready, a frame that was dropped: none of it is rest."""
    board.row("scheduler0")["kv_blocks"] = 8
    board.row("executor0").enter(State.STARTING)
    board.row("ingest0")["bad_frames"] = 1
    said = " ".join(Books(os.getpid(), NAMES).unrest())
    assert "0 of 8 KV blocks" in said and "executor0 is starting" in said and "ingest0: 1 bad frames" in said


def test_a_life(board: Board) -> None:
    """Which process has a name now, whether it is ready, and the how-manieth it is."""
    books = Books(os.getpid(), NAMES)
    before = books.life("executor0")
    board.row("executor0").begin()
    board.row("executor0").live(4)
    after = books.life("executor0")
    assert (before.number, before.pid, before.ready) == (0, os.getpid(), True)
    assert (after.number, after.ready) == (4, False)


def test_holdings(board: Board) -> None:
    """A file that is opened is one more in the books; memory is that of processes; segments have their sizes."""
    books = Books(os.getpid(), NAMES)
    before = books.holdings()
    with Path(os.devnull).open():
        during = books.holdings()
    assert during.descriptors[SUPERVISOR] == before.descriptors[SUPERVISOR] + 1
    assert min(before.rss.values()) > 1 << 20
    assert [size > 0 for size in before.segments.values()] == [True]


BEFORE = Holdings({"output0": 10}, {"output0": 100 << 20}, {"board": 512})


@pytest.mark.parametrize(
    "after, said",
    [
        (Holdings({"output0": 11}, BEFORE.rss, BEFORE.segments), "11 open files instead of 10"),
        (Holdings(BEFORE.descriptors, {"output0": 200 << 20}, BEFORE.segments), "200 MiB instead of 100"),
        (Holdings(BEFORE.descriptors, BEFORE.rss, {"board": 512, "more": 1}), "('more', 1)"),
        (Holdings(BEFORE.descriptors, BEFORE.rss, {}), "('board', 512)"),
    ],
)
def test_leaks(after: Holdings, said: str) -> None:
    """More of anything is told; of memory, more than an allocator keeps."""
    (found,) = leaks(BEFORE, after)
    assert said in found


def test_no_leaks() -> None:
    """The same, or less: a new process has not opened yet what the one before had."""
    assert leaks(BEFORE, BEFORE) == []
    assert leaks(BEFORE, Holdings({"output0": 9}, {"output0": 90 << 20}, BEFORE.segments)) == []
