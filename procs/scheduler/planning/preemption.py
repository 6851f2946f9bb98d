"""Preemption by recompute: who loses its blocks when a decode finds none, and what becomes of it.

The victim keeps its known tokens and waits at its place of arrival. Its blocks may be given out in the same
plan: the executor runs steps in the order of planning.
"""

from __future__ import annotations

from collections.abc import Container, Iterator

from ..request import Phase
from ..rows import RowTable
from ..state.checkpoints import Checkpoints
from ..statistics import Statistics
from ..waiting import WaitingLine
from .admission import Admission

MAX_PREEMPTIONS = 3
"""A request preempted so often is chosen again only if no other is left."""


class Preemption:
    """Preempts rows of one table."""

    def __init__(
        self,
        table: RowTable,
        waiting: WaitingLine,
        admission: Admission,
        statistics: Statistics,
        checkpoints: Checkpoints,
    ) -> None:
        self._table = table
        self._waiting = waiting
        self._admission = admission
        self._statistics = statistics
        self._checkpoints = checkpoints

    def victims(self, kept: Container[int]) -> Iterator[int]:
        """The running rows in the order in which they are to lose their blocks; no pinned one.

        The worst priority, then the least work lost: tokens to compute again that the prefix cache has not; then
        the youngest. The order is computed once, when the first is asked for: it holds through one plan, in which
        nothing but preemption changes it. None is given that is in `kept` when its turn comes; those are the rows in
        the step, which stay in it.
        """
        table, keeps = self._table, self._table.pool.keep

        def cost(row: int) -> tuple[bool, int, int, int]:
            request = table.request(row)
            cached = int(table.published[row]) * table.block_size if keeps and request.takes_hits else 0
            lost = max(0, int(table.committed[row]) - cached)
            return request.preemptions >= MAX_PREEMPTIONS, -request.priority, lost, -request.arrival

        rows = table.in_order()
        for row in sorted(rows[~table.pinned[rows]].tolist(), key=cost):
            if row not in kept:
                yield row

    def preempt(self, row: int) -> None:
        """Take a row's blocks for others. No more may run than are left now."""
        request = self._table.request(row)
        self._statistics.preemptions += 1
        request.preemptions += 1
        self.suspend(row)
        self._admission.shortage()

    def suspend(self, row: int) -> None:
        """Take a row's blocks and state. Its request waits to be admitted again."""
        request = self._table.request(row)
        request.computed_tokens = int(self._table.committed[row])
        self._checkpoints.release(row)
        request.tokens = self._table.release(row)
        request.attempt += 1
        request.phase, request.suspended = Phase.PREEMPTED, True
        self._waiting.add(request)
