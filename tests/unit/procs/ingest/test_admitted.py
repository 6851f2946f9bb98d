"""One limit for the choices of all ingests."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fourstroke.ipc.board import Board, board_bytes
from fourstroke.procs.ingest.admitted import Admitted
from fourstroke.procs.ingest.errors import Refusal
from fourstroke.procs.ingest.table import Table

from .test_choices import Nowhere

CAPACITY = 10


def make(ingests: int) -> tuple[Board, list[Table]]:
    names = [f"ingest{number}" for number in range(ingests)]
    board = Board(bytearray(board_bytes(ingests)), names)
    rows = board.of_role("ingest")
    tables = [
        Table(Nowhere(), index, CAPACITY, Admitted(row, [other for other in rows if other is not row]))
        for index, row in enumerate(rows)
    ]
    return board, tables


@given(st.integers(1, 3), st.lists(st.tuples(st.integers(0, 2), st.integers(1, 6), st.booleans()), max_size=30))
def test_the_limit_is_exact(ingests: int, orders: list[tuple[int, int, bool]]) -> None:
    """Whoever asks, what fits into the sum of all is admitted and nothing else; the board tells the numbers."""
    board, tables = make(ingests)
    taken = [0] * ingests
    for ingest, count, leaves in orders:
        ingest %= ingests
        if leaves:
            tables[ingest].release(taken[ingest])
            taken[ingest] = 0
            continue
        try:
            tables[ingest].reserve(count)
            taken[ingest] += count
            assert sum(taken) <= CAPACITY
        except Refusal as refusal:
            assert refusal.status == 429 and f" {sum(taken)} are" in str(refusal)
            assert sum(taken) + count > CAPACITY
        assert [row["requests_admitted"] for row in board.of_role("ingest")] == taken


def test_at_the_same_time() -> None:
    """Of two that are told before either looks, no more are admitted than fit."""
    board, (first, second) = make(2)
    other = board.row("ingest1")

    class Racing(Admitted):
        """The other ingest says that it takes six, just before this one looks."""

        @property
        def elsewhere(self) -> int:
            other["requests_admitted"] = 6
            return super().elsewhere

    first._admitted = Racing(board.row("ingest0"), [other])
    try:
        first.reserve(5)
        raise AssertionError("eleven were admitted")
    except Refusal:
        assert board.row("ingest0")["requests_admitted"] == 0
    second.reserve(6)


def test_successor() -> None:
    """An ingest that takes the place of one that died has admitted nothing yet."""
    board, (first, _) = make(2)
    first.reserve(9)
    rows = board.of_role("ingest")
    Table(Nowhere(), 0, CAPACITY, Admitted(rows[0], rows[1:]))
    assert rows[0]["requests_admitted"] == 0
