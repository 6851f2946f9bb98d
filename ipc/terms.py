"""Who leads a group: one leader per term, which the file system decides.

To lead a term is to have made the symbolic link of its number, in the server's socket folder. The kernel lets only one
process make it, whole and at once, and what it points to is the leader's rank and pid. A leader that is gone or silent
is followed by the leader of a later term; it cannot stand in the way by stopping in the wrong moment.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Seat(NamedTuple):
    """A rank, and the process that has it."""

    rank: int
    pid: int


class Terms:
    """The terms of a group, counted from 1, as one rank sees them."""

    def __init__(self, folder: Path, seat: Seat) -> None:
        self._folder = folder
        self._seat = seat

    def claim(self, term: int) -> bool:
        """Lead a term; false if another leads it."""
        try:
            self._link(term).symlink_to(f"{self._seat.rank}.{self._seat.pid}")
        except FileExistsError:
            return False
        return True

    def leader(self, term: int) -> Seat:
        """Who leads a term that somebody has claimed."""
        rank, _, pid = str(self._link(term).readlink()).partition(".")
        return Seat(int(rank), int(pid))

    def _link(self, term: int) -> Path:
        return self._folder / f"term{term}"
