"""What a server holds, sampled over time, and how fast that grows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from .books import Holdings

SAMPLE_EVERY_S = 5.0

_WARM_UP_SHARE = 0.25
"""So much of the time caches and allocators may take to fill up; it is not looked at."""

_MAY_GROW_BYTES = 4 << 20
_MAY_GROW_BY = 0.03
"""What a process may grow by, in bytes or in its own size, whichever is more, in the time that is looked at."""


@dataclass(frozen=True, slots=True)
class Trend:
    """A number at first and at last in the time looked at, how it grows an hour, and grew (by a fitted line)."""

    first: float
    last: float
    an_hour: float
    grown: float


class Samples:
    """Takes what is held every SAMPLE_EVERY_S seconds at most; called as often as one likes."""

    def __init__(self, take: Callable[[], Holdings]) -> None:
        self._take = take
        self._taken: list[tuple[float, Holdings]] = []

    def look(self, now_s: float) -> None:
        if not self._taken or now_s - self._taken[-1][0] >= SAMPLE_EVERY_S:
            self._taken.append((now_s, self._take()))

    @property
    def rss(self) -> dict[str, Trend]:
        """Resident bytes of each process."""
        return self._trends(lambda held: held.rss)

    @property
    def descriptors(self) -> dict[str, Trend]:
        """Open files of each process."""
        return self._trends(lambda held: held.descriptors)

    @property
    def shared_memory(self) -> dict[str, Trend]:
        """Bytes in /dev/shm, all files together, under one name."""
        return self._trends(lambda held: {"all": sum(held.segments.values())})

    def _trends(self, of: Callable[[Holdings], Mapping[str, int]]) -> dict[str, Trend]:
        rows = [(at_s, of(held)) for at_s, held in self._taken]
        names = {name: None for _, values in rows for name in values}
        found = {}
        for name in names:
            points = [(at_s, values[name]) for at_s, values in rows if name in values]
            found[name] = trend(points)
        return found


def trend(points: list[tuple[float, int]]) -> Trend:
    """The trend of numbers over seconds, of which there is at least one."""
    kept = points[int(len(points) * _WARM_UP_SHARE) :]
    times, values = np.array(kept, float).T
    if len(kept) < 2:
        return Trend(values[0], values[0], 0.0, 0.0)
    slope = float(np.polyfit(times - times[0], values, 1)[0])
    return Trend(values[0], values[-1], slope * 3600, slope * float(times[-1] - times[0]))


def growing(samples: Samples) -> list[str]:
    """What does not stay flat, in words."""
    found = [
        f"{name} grows by {one.an_hour / 2**20:.1f} MiB an hour"
        for name, one in samples.rss.items()
        if one.grown > max(_MAY_GROW_BYTES, one.first * _MAY_GROW_BY)
    ]
    found += ["/dev/shm does not stay as it is" for one in samples.shared_memory.values() if one.last != one.first]
    return found
