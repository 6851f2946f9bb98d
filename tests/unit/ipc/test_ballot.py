"""The memory of a group: what one rank writes the others read, whole or not at all."""

from __future__ import annotations

import pytest

from fourstroke.ipc.ballot import MAX_VALUES, BallotRow, Offer, Verdict, ballot_bytes, ballot_rows

VALUES = tuple(float(value) for value in range(MAX_VALUES))
VERDICT = Verdict(2, 6, 3, (11, 0, 13), 5, True, VALUES)


def rows(size: int = 3) -> tuple[list[BallotRow], list[BallotRow]]:
    """Two processes' views of one memory."""
    memory = bytearray(ballot_bytes(size))
    return ballot_rows(memory, size), ballot_rows(memory, size)


def test_empty() -> None:
    """Zeroed memory holds no process, no offer and no verdict."""
    for row in rows()[0]:
        assert (row.pid, row.term, row.offered, row.offer_of(0), row.verdict()) == (0, 0, 0, None, None)


def test_other_side_reads_what_was_written() -> None:
    """Each rank has its own row, and missing values are 0."""
    mine, theirs = rows()
    for rank, row in enumerate(mine):
        row.enter(100 + rank)
        row.enter_term(2 + rank)
        row.offer(Offer(2, 5, rank, (1.5, rank)))
        row.publish(Verdict(2, 5, rank, (1, 2, 3), 3, False, (rank,)))
    for rank, row in enumerate(theirs):
        assert (row.pid, row.term, row.offered) == (100 + rank, 2 + rank, 5)
        assert row.offer_of(5) == Offer(2, 5, rank, (1.5, rank, *[0.0] * (MAX_VALUES - 2)))
        verdict = row.verdict()
        assert verdict == Verdict(2, 5, rank, (1, 2, 3), 3, False, (rank, *[0.0] * (MAX_VALUES - 1)))


def test_newest_and_the_one_before() -> None:
    """A slow reader finds the offer of the tick before; the one before that has been written over."""
    mine, theirs = rows()
    for tick in (4, 5, 6):
        mine[0].offer(Offer(2, tick, tick, VALUES))
        mine[0].publish(Verdict(2, tick, 3, (11, 0, 13), 5, True, VALUES))
    assert theirs[0].offered == 6
    assert theirs[0].offer_of(4) is None
    assert [theirs[0].offer_of(tick) for tick in (5, 6)] == [Offer(2, tick, tick, VALUES) for tick in (5, 6)]
    assert theirs[0].verdict() == VERDICT


def test_new_process() -> None:
    """It has offered nothing yet; what its predecessor has decided stands, and leaving takes nothing back."""
    mine, theirs = rows()
    mine[0].enter(100)
    mine[0].offer(Offer(2, 6, 3, VALUES))
    mine[0].publish(VERDICT)
    mine[0].leave()
    assert (theirs[0].pid, theirs[0].offered, theirs[0].verdict()) == (0, 6, VERDICT)
    mine[0].enter(101)
    assert (theirs[0].pid, theirs[0].offered, theirs[0].offer_of(6), theirs[0].verdict()) == (101, 0, None, VERDICT)


def test_record_that_changes() -> None:
    """A writer that stops in the middle has written nothing, and the record of the tick before is untouched."""
    mine, theirs = rows()
    mine[0].publish(Verdict(2, 5, 3, (11, 0, 13), 2, True, VALUES))
    mine[0].publish(VERDICT)
    with pytest.raises(ValueError):
        mine[0].publish(Verdict(2, 7, 3, (11, 12), 2, True, VALUES))
    assert theirs[0].verdict() == VERDICT


def test_order_of_verdicts() -> None:
    """A later term comes after an earlier one, whatever their ticks."""
    verdicts = [Verdict(term, tick, 1, (), 0, False, ()) for term, tick in ((2, 4), (1, 9), (2, 3))]
    places = [(verdict.term, verdict.tick) for verdict in sorted(verdicts, key=lambda verdict: verdict.place)]
    assert places == [(1, 9), (2, 3), (2, 4)]
