"""Who waits: the lines of fresh and of preempted requests, and the order in which they are admitted.

By priority, lower first; then preempted before fresh; then by arrival.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from itertools import islice

from .request import Phase, Request

PORTION = 64
"""So many of a line are looked up at once: a walk mostly ends after a few, and a line may have thousands."""


class _Line:
    """Requests of one priority and kind in the order of arrival; nearly always the youngest joins, at the end."""

    def __init__(self) -> None:
        self.requests: dict[int, Request] = {}
        self._youngest = -1
        self._sorted = True

    def add(self, request: Request) -> None:
        if request.arrival < self._youngest:
            self._sorted = False
        self._youngest = max(self._youngest, request.arrival)
        self.requests[request.rid] = request

    def __iter__(self) -> Iterator[Request]:
        if not self._sorted:
            self.requests = {one.rid: one for one in sorted(self.requests.values(), key=lambda one: one.arrival)}
            self._sorted = True
        return iter(self.requests.values())

    def walk(self) -> Iterator[Request]:
        """One after the other. Who was given last may leave meanwhile, and nobody else."""
        stayed = 0
        while portion := list(islice(self, stayed, stayed + PORTION)):
            yield from portion
            stayed += sum(one.rid in self.requests for one in portion)


class WaitingLine:
    """All waiting requests."""

    def __init__(self) -> None:
        self._preempted: dict[int, _Line] = {}
        self._fresh: dict[int, _Line] = {}
        self._priorities: list[int] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, request: Request) -> None:
        """A request joins at its place."""
        lines = self._lines(request)
        if request.priority not in self._preempted:
            bisect.insort(self._priorities, request.priority)
            self._preempted[request.priority], self._fresh[request.priority] = _Line(), _Line()
        lines[request.priority].add(request)
        self._count += 1

    def remove(self, request: Request) -> None:
        """A request leaves. Lines of a priority that nobody has any more go, too."""
        priority = request.priority
        del self._lines(request)[priority].requests[request.rid]
        self._count -= 1
        if priority and not (self._preempted[priority].requests or self._fresh[priority].requests):
            del self._preempted[priority], self._fresh[priority]
            self._priorities.remove(priority)

    def _lines(self, request: Request) -> dict[int, _Line]:
        return self._preempted if request.phase is Phase.PREEMPTED else self._fresh

    def walk(self, *, fresh: bool = True) -> Iterator[Request]:
        """In the order of admission, or of this the preempted alone. Who was given last may leave meanwhile."""
        for priority in list(self._priorities):
            for lines in (self._preempted, self._fresh) if fresh else (self._preempted,):
                if priority in lines:
                    yield from lines[priority].walk()

    def oldest_fresh_s(self) -> float | None:
        """When the oldest fresh request arrived."""
        firsts = [next(iter(line), None) for line in self._fresh.values()]
        return min((one.arrived_s for one in firsts if one is not None), default=None)
