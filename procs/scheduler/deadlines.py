"""When requests must have ended. Entries of requests that end before are thrown out in bulk."""

from __future__ import annotations

import heapq
import math
from collections.abc import Container, Iterator

_KEPT = 1024
"""So many entries are kept without a look at whether their requests still live."""


class Deadlines:
    """The deadlines of the live requests that have one. Times are of the caller's clock, in seconds."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int]] = []
        self._look_at = _KEPT

    @property
    def next_s(self) -> float:
        """The earliest; infinity if there is none."""
        return self._heap[0][0] if self._heap else math.inf

    def add(self, deadline_s: float, rid: int, live: Container[int]) -> None:
        """A request has a deadline; those that are not in `live` need none any more."""
        heapq.heappush(self._heap, (deadline_s, rid))
        if len(self._heap) > self._look_at:
            self._heap = [entry for entry in self._heap if entry[1] in live]
            heapq.heapify(self._heap)
            self._look_at = max(_KEPT, 2 * len(self._heap))

    def due(self, now: float) -> Iterator[int]:
        """The ids of the requests whose time has come, each once; some may have ended before."""
        while self.next_s <= now:
            yield heapq.heappop(self._heap)[1]
