"""The two lists of free blocks: vacant ones, lowest id first, and cached ones, least recently used first.

Neither knows a digest or who held a block; the pool (blocks.py) decides which list a block enters. Every operation
takes many ids at once. The arrays have a fixed size: no history makes them grow.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.intp]
Flags = npt.NDArray[np.bool_]


def _first_set(flags: Flags, start: int, count: int) -> Ids:
    """Where the first `count` set flags from `start` on are; there are so many.

    Looks at a stretch that is likely to hold enough, and at more if it does not.
    """
    stretch = 4 * count + 1024
    found = np.flatnonzero(flags[start : start + stretch])
    while len(found) < count:
        assert start + stretch < len(flags), f"{len(found)} free blocks where {count} were counted"
        stretch *= 8
        found = np.flatnonzero(flags[start : start + stretch])
    return found[:count] + start


class VacantBlocks:
    """Which of the blocks 0..capacity-1 are vacant; none at the start."""

    def __init__(self, capacity: int) -> None:
        self.flags: Flags = np.zeros(capacity, np.bool_)
        self.count = 0
        self._lowest = capacity  # no block below this one is vacant

    def add(self, ids: Ids) -> None:
        """Blocks that are not vacant become so."""
        self.flags[ids] = True
        self.count += len(ids)
        self._lowest = min(self._lowest, int(ids.min(initial=self._lowest)))

    def remove(self, block: int) -> None:
        """A vacant block is vacant no longer."""
        self.flags[block] = False
        self.count -= 1

    def take(self, count: int) -> Ids:
        """The lowest `count` vacant blocks, in order; there are so many."""
        ids = _first_set(self.flags, self._lowest, count)
        self.flags[ids] = False
        self.count -= count
        self._lowest = int(ids[-1]) + 1 if count else self._lowest
        return ids

    def check(self) -> None:
        """Compare the books; raises AssertionError."""
        assert self.count == np.count_nonzero(self.flags), "vacant blocks were lost"
        assert not self.flags[: self._lowest].any(), "a vacant block lies below the lowest"


class LruQueue:
    """Cached blocks in the order of their last use: an array in which a block that leaves makes a hole.

    It has twice as many places as there are blocks. When its end is reached, at the earliest after as many blocks have
    come as there are, the holes are closed: their cost is a few moves for each block that came.
    """

    def __init__(self, capacity: int) -> None:
        self.count = 0
        self._queue: Ids = np.zeros(2 * capacity, np.intp)
        self._filled: Flags = np.zeros(2 * capacity, np.bool_)
        self._place: Ids = np.zeros(capacity, np.intp)  # by block; means nothing for a block that is not here
        self._start = self._end = 0  # all filled places lie between

    def append(self, ids: Ids) -> None:
        """Blocks that are not here come in at the most recent end, in this order."""
        if self._end + len(ids) > len(self._queue):
            self._close_holes()
        end = self._end + len(ids)
        self._queue[self._end : end] = ids
        self._filled[self._end : end] = True
        self._place[ids] = np.arange(self._end, end)
        self._end = end
        self.count += len(ids)

    def _close_holes(self) -> None:
        ids = self.in_order()
        self._start = self._end = self.count = 0
        self._filled[:] = False
        self.append(ids)

    def in_order(self) -> Ids:
        """All blocks that are here, the least recently used one first."""
        return self._queue[self._start : self._end][self._filled[self._start : self._end]]

    def take(self, count: int) -> Ids:
        """Remove the `count` least recently used blocks and give them in order; there are so many."""
        places = _first_set(self._filled, self._start, count)
        self._filled[places] = False
        self.count -= count
        self._start = int(places[-1]) + 1 if count else self._start
        return self._queue[places]

    def remove(self, ids: Ids) -> None:
        """Blocks that are here leave, wherever they stand."""
        self._filled[self._place[ids]] = False
        self.count -= len(ids)

    def check(self) -> None:
        """Compare the books; raises AssertionError."""
        ids = self.in_order()
        assert self.count == np.count_nonzero(self._filled) == len(ids) == len(np.unique(ids)), (
            "cached blocks were lost"
        )
        assert (self._queue[self._place[ids]] == ids).all(), "a cached block stands elsewhere"
