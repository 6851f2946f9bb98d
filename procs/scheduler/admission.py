"""Who waits, and who may run: the waiting lines, and the question whether a request fits.

A request is admitted when the pool can hold all of its known tokens beside what was promised to the
prefills that run, and still has headroom: room for every running request to go on for a while. Without
headroom the pool would be full at the next block boundary, and somebody preempted again and again.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .blocks import BlockPool, blocks_for
from .request import Phase, Request
from .rows import RowTable

CALM_STEPS = 256
"""So many steps without a shortage of blocks remove the cap that a preemption left."""


class WaitingLine:
    """Requests that wait: preempted ones first, each kind in the order of arrival."""

    def __init__(self) -> None:
        self._preempted: dict[int, Request] = {}
        self._fresh: dict[int, Request] = {}

    def __len__(self) -> int:
        return len(self._preempted) + len(self._fresh)

    def add(self, request: Request) -> None:
        """A fresh request joins at the end; a preempted one has its place by arrival."""
        line = self._preempted if request.phase is Phase.PREEMPTED else self._fresh
        line[request.rid] = request

    def remove(self, request: Request) -> None:
        line = self._preempted if request.phase is Phase.PREEMPTED else self._fresh
        del line[request.rid]

    def head(self) -> Request | None:
        """Who is next."""
        if self._preempted:
            return min(self._preempted.values(), key=lambda request: request.arrival)
        return next(iter(self._fresh.values()), None)


class Admission:
    """Decides whether a request may join the running ones now."""

    def __init__(self, table: RowTable, pool: BlockPool, max_rows: int, lookahead: int) -> None:
        self._table = table
        self._pool = pool
        self._max_rows = max_rows
        self._lookahead = lookahead
        self._cap = max_rows
        self._calm_steps = 0

    def fits(self, request: Request) -> bool:
        """Whether the request fits now. No side effect."""
        if self._table.running_count >= self._cap:
            return False
        wanted = blocks_for(len(request.tokens), self._table.block_size)
        if self._table.running_count == 0:
            return wanted <= self._pool.free
        return self._pool.free - self._promised() - wanted >= self._headroom(request)

    def _promised(self) -> int:
        """Blocks that running prefills will still take to reach their targets."""
        rows = self._table.in_order()
        targets = -(-self._table.target[rows] // self._table.block_size)
        return int(np.maximum(targets - self._table.blocks[rows], 0).sum())

    def _headroom(self, request: Request) -> int:
        """Blocks for the next `lookahead` tokens of everybody, beyond what they hold or were promised."""
        table, size = self._table, self._table.block_size
        rows = table.in_order()
        held = np.maximum(table.blocks[rows], -(-table.target[rows] // size))
        ahead = -(-self._ahead(table.length[rows], table.total_limit[rows]) // size)
        known = len(request.tokens)
        own = blocks_for(min(known + self._lookahead, request.total_limit), size) - blocks_for(known, size)
        return int(np.maximum(ahead - held, 0).sum()) + own

    def _ahead(self, length: npt.NDArray[np.int64], limit: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return np.minimum(length + self._lookahead, limit)

    def shortage(self) -> None:
        """A request was preempted: no more may run than are left now."""
        self._cap = max(1, self._table.running_count)
        self._calm_steps = 0

    def finished(self, requests: int) -> None:
        """Requests ended: each makes room for one more."""
        self._cap = min(self._max_rows, self._cap + requests)

    def stepped(self) -> None:
        """A step was planned without a shortage."""
        self._calm_steps += 1
        if self._calm_steps >= CALM_STEPS:
            self._cap = self._max_rows
