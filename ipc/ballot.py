"""The memory in which the ranks of a group agree: what each offers, and what the leader has decided.

One row for each rank, written by that rank alone:

    | pid | term | offers of an even and an odd tick | verdicts of an even and an odd tick |

There are two of each because a fast rank may begin the next tick while a slow one still reads the last;
it cannot be further ahead, since the next tick ends only when all have offered. Ranks that were left out keep
to no such order. So a record's tick is 0 while the record changes: whoever finds another tick after reading
than before has read nothing. Stores must be seen in the order in which they were made, as x86-64 does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

MAX_VALUES = 8
"""Numbers that a rank may offer."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A rank's numbers for a tick, and the generation in which it is; 0 is none, which asks to be let in."""

    term: int
    tick: int
    generation: int
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a tick ended, by the word of the one who leads the term.

    `members` has for each rank the pid that is waited for in the next tick, or 0; `counted` has a bit for each
    rank whose numbers are in `values`. A tick has failed if a member was not counted.
    """

    term: int
    tick: int
    generation: int
    members: tuple[int, ...]
    counted: int
    failed: bool
    values: tuple[float, ...]

    @property
    def place(self) -> tuple[int, int]:
        """Where it stands in the order of all verdicts."""
        return (self.term, self.tick)


_OFFER = [("term", np.int64), ("tick", np.int64), ("generation", np.int64), ("values", np.float64, MAX_VALUES)]


def _row_type(size: int) -> np.dtype[np.void]:
    verdict = [*_OFFER, ("members", np.int64, (size,)), ("counted", np.int64), ("failed", np.int64)]
    return np.dtype([("pid", np.int64), ("term", np.int64), ("offer", _OFFER, 2), ("verdict", verdict, 2)])


def ballot_bytes(size: int) -> int:
    """The memory that a group of so many ranks takes."""
    return size * _row_type(size).itemsize


class BallotRow:
    """One rank's row."""

    def __init__(self, row: npt.NDArray[np.void]) -> None:
        self._pid = row["pid"]
        self._term = row["term"]
        self._offers = _Records(row["offer"][0])
        self._verdicts = _Records(row["verdict"][0])
        self._last_read: Verdict | None = None

    @property
    def pid(self) -> int:
        """The process that has this rank; 0 while there is none."""
        return int(self._pid[0])

    def enter(self, pid: int) -> None:
        """Take the rank. What the process before had offered is void; what it had decided stands."""
        self._offers.clear()
        self._pid[0] = pid

    def leave(self) -> None:
        self._pid[0] = 0

    @property
    def term(self) -> int:
        """The term in which this rank is."""
        return int(self._term[0])

    def enter_term(self, term: int) -> None:
        self._term[0] = term

    @property
    def offered(self) -> int:
        """The last tick in which this rank has taken part."""
        return self._offers.newest

    def offer(self, offer: Offer) -> None:
        self._offers.write(offer.tick, term=offer.term, generation=offer.generation, values=_padded(offer.values))

    def offer_of(self, tick: int) -> Offer | None:
        record = self._offers.read(tick)
        if record is None:
            return None
        return Offer(int(record["term"]), tick, int(record["generation"]), tuple(record["values"].tolist()))

    def publish(self, verdict: Verdict) -> None:
        self._verdicts.write(
            verdict.tick,
            term=verdict.term,
            generation=verdict.generation,
            members=verdict.members,
            counted=verdict.counted,
            failed=verdict.failed,
            values=_padded(verdict.values),
        )

    def verdict(self) -> Verdict | None:
        """The last one of this rank, if it has decided anything."""
        newest = self._verdicts.newest
        if self._last_read is not None and self._last_read.tick == newest:
            return self._last_read
        record = self._verdicts.read(newest)
        if record is None:
            return None
        self._last_read = Verdict(
            int(record["term"]),
            int(record["tick"]),
            int(record["generation"]),
            tuple(record["members"].tolist()),
            int(record["counted"]),
            bool(record["failed"]),
            tuple(record["values"].tolist()),
        )
        return self._last_read


def ballot_rows(memory: memoryview | bytearray, size: int) -> list[BallotRow]:
    """All rows, over zeroed memory of ballot_bytes(size) bytes."""
    rows = np.frombuffer(memory, _row_type(size), size)
    return [BallotRow(rows[rank : rank + 1]) for rank in range(size)]


def _padded(values: tuple[float, ...]) -> tuple[float, ...]:
    return values + (0.0,) * (MAX_VALUES - len(values))


class _Records:
    """Two records of one kind, by the parity of their ticks."""

    def __init__(self, records: npt.NDArray[np.void]) -> None:
        self._records = records
        self._ticks = records["tick"]

    @property
    def newest(self) -> int:
        even, odd = self._ticks.tolist()
        return int(max(even, odd))

    def clear(self) -> None:
        self._ticks[:] = 0

    def write(self, tick: int, **fields: Any) -> None:
        place = tick % 2
        self._ticks[place] = 0
        for name, value in fields.items():
            self._records[name][place] = value
        self._ticks[place] = tick

    def read(self, tick: int) -> Any:
        """A copy of the record of a tick, or None if it is not there (any more)."""
        place = tick % 2
        if tick == 0 or self._ticks[place] != tick:
            return None
        record = self._records[place].copy()
        return record if self._ticks[place] == tick else None
