"""How many choices the ingests of a server have admitted, each in its own row of the board.

The limit of --max-queue is one for all of them. The table tells its own count here with each change and
asks for that of the others before it admits. Knows no limit.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...ipc.board import Row


class Admitted:
    """The counts of this ingest and of the others; without rows those of an ingest that is alone and unseen."""

    def __init__(self, own: Row | None = None, others: Sequence[Row] = ()) -> None:
        self._own = own
        self._others = others
        self.tell(0, 0)  # a process before this one may have left other numbers

    def tell(self, admitted: int, live: int) -> None:
        """So many choices are admitted here, of which so many are live: the rest is being tokenised."""
        if self._own is not None:
            self._own["requests_admitted"] = admitted
            self._own["requests_live"] = live

    @property
    def elsewhere(self) -> int:
        """Choices that the other ingests have admitted."""
        return sum([row["requests_admitted"] for row in self._others])
