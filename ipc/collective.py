"""How the ranks of a group add up numbers together, once a tick; and the two ways that need no memory or socket.

`Alone` is a group of one. `LocalGroup` joins ranks that run in the threads of one process, as tests do.
`shared_collective` joins the processes of a host. What the numbers mean, this knows not.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from ..common.errors import CollectiveError

Combine = Callable[[Iterable[float]], float]


class Collective(Protocol):
    """One rank's place in a group. Every rank calls the same operation, once a tick, with as many values.

    Raises CollectiveError if the ranks did not agree on this tick. The next tick may be tried at once.
    """

    @property
    def size(self) -> int:
        """Ranks that were counted in the last answer."""
        ...

    @property
    def generation(self) -> int:
        """Another number whenever the group has changed: what ranks remember of earlier ticks may differ."""
        ...

    def sum(self, values: Sequence[float]) -> list[float]: ...

    def max(self, values: Sequence[float]) -> list[float]: ...


def combined(combine: Combine, offers: Iterable[Sequence[float]]) -> list[float]:
    """Add up, or take the largest of, each column of the ranks' values."""
    return [combine(column) for column in zip(*offers, strict=True)]


class Alone:
    """A group of one rank: nothing is exchanged."""

    size = 1
    generation = 0

    def sum(self, values: Sequence[float]) -> list[float]:
        return list(values)

    def max(self, values: Sequence[float]) -> list[float]:
        return list(values)


class LocalGroup:
    """A group inside one process. Each rank calls from a thread of its own and blocks until all have called."""

    def __init__(self, size: int, timeout_s: float = 10.0) -> None:
        self._offers: list[Sequence[float]] = [()] * size
        self._agreed: list[Sequence[float]] = []
        self._barrier = threading.Barrier(size, self._close_tick, timeout_s)
        self.ranks = [LocalCollective(self, rank, size) for rank in range(size)]

    def _close_tick(self) -> None:
        """Runs in one thread while all others wait, so nobody's next offer gets among these."""
        self._agreed = list(self._offers)

    def agree(self, rank: int, values: Sequence[float], combine: Combine) -> list[float]:
        self._offers[rank] = values
        try:
            self._barrier.wait()
        except threading.BrokenBarrierError:
            raise CollectiveError("a rank of the group did not answer") from None
        return combined(combine, self._agreed)


class LocalCollective:
    """One rank of a LocalGroup."""

    generation = 0

    def __init__(self, group: LocalGroup, rank: int, size: int) -> None:
        self.size = size
        self._group = group
        self._rank = rank

    def sum(self, values: Sequence[float]) -> list[float]:
        return self._group.agree(self._rank, values, sum)

    def max(self, values: Sequence[float]) -> list[float]:
        return self._group.agree(self._rank, values, max)
