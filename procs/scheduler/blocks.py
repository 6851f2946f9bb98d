"""The pool of KV cache blocks: which are free. Ids are given out lowest first.

The pool knows no request: who holds a block is written in the row table.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ...ipc.plan import Column


def blocks_for(tokens: int, block_size: int) -> int:
    """How many blocks hold so many tokens."""
    return -(-tokens // block_size)


class BlockPool:
    """Blocks 0..size-1, each free or taken."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.free = size
        self._vacant: npt.NDArray[np.bool_] = np.ones(size, np.bool_)
        self._lowest = 0  # no block below this one is vacant

    def take(self, count: int) -> Column | None:
        """The ids of `count` blocks, lowest first, or None and no change if there are not so many."""
        if count > self.free:
            return None
        ids = self._first_vacant(count)
        self._vacant[ids] = False
        self.free -= count
        self._lowest = int(ids[-1]) + 1 if count else self._lowest
        return ids.astype(np.int32)

    def _first_vacant(self, count: int) -> npt.NDArray[np.intp]:
        """Look at a stretch of the pool that is likely to hold enough, and at more if it does not."""
        stretch = 4 * count + 1024
        while True:
            ids = np.flatnonzero(self._vacant[self._lowest : self._lowest + stretch])[:count] + self._lowest
            if len(ids) == count:
                return ids
            stretch *= 8

    def release(self, ids: Column) -> None:
        """Give blocks back."""
        if not len(ids):
            return
        self._vacant[ids] = True
        self.free += len(ids)
        self._lowest = min(self._lowest, int(ids.min()))

    def check(self, held: Column) -> None:
        """Compare the books with the blocks that the holders say they hold; raises AssertionError."""
        assert len(np.unique(held)) == len(held), "a block is held twice"
        assert not self._vacant[held].any(), "a held block is free"
        assert self.free == np.count_nonzero(self._vacant) == self.size - len(held), "blocks were lost"
        assert not self._vacant[: self._lowest].any(), "a vacant block lies below the lowest"
