"""Filling one step: decodes first, then chunks of running prefills, then admissions, in one token budget.

A long prompt so never stops a running stream. Decodes that find no block for their next token preempt
others by recompute; prefill chunks never preempt, they wait. The budget always holds all decodes: each
row was admitted into a step that had a token left beside all others.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ...ipc.messages import NewRow
from .admission import Admission, WaitingLine
from .request import Phase, Request
from .rows import Rows, RowTable
from .step import StepBuilder

CHUNK_UNIT = 64
"""A prompt that is cut is cut at a multiple of this or of the block size, whichever is more."""

MAX_PREEMPTIONS = 3
"""A request preempted so often is chosen again only if no other is left."""


def chunk_size(new: int, left: int, block_size: int, first: bool, budget: int) -> int:
    """How many of `new` prompt tokens go into a step with `left` of its `budget`; 0 is none.

    `first`: no other prefill is in the step. A cut leaves no slivers: it is at a multiple of the unit.
    """
    if new <= left:
        return new
    unit = max(block_size, CHUNK_UNIT)
    whole = left // unit * unit
    if whole:
        return whole
    return left if first or budget < unit else 0


class Planner:
    """Plans for one row table. What it did to requests is left in its counters for the core to take."""

    def __init__(
        self, table: RowTable, waiting: WaitingLine, admission: Admission, eos_token_ids: tuple[int, ...]
    ) -> None:
        self.preemptions = 0
        self.recomputed_tokens = 0
        self._table = table
        self._waiting = waiting
        self._admission = admission
        self._eos_token_ids = eos_token_ids
        self._exhausted: int | None = None

    def take_exhausted(self) -> int | None:
        """The row that runs alone and cannot grow any more, if there is one; the core ends it."""
        row, self._exhausted = self._exhausted, None
        return row

    def fill(self, builder: StepBuilder, idle: bool) -> None:
        """Put into a step what the budget holds. `idle`: no step is open, so nothing else will free blocks."""
        budget = builder.left
        before = self.preemptions
        self._decodes(builder)
        blocked = self._prefills(builder, budget)
        while blocked and idle and builder.empty:
            self._preempt(int(self._table.in_order()[-1]))
            blocked = self._prefills(builder, budget)
        self._admissions(builder, budget)
        if self.preemptions == before and not builder.empty:
            self._admission.stepped()

    # Decodes

    def _decodes(self, builder: StepBuilder) -> None:
        table = self._table
        rows = self._decodable()
        starts = table.scheduled[rows]
        short = rows[starts >= table.blocks[rows] * table.block_size]
        if len(short) <= table.pool.free:
            self._grow_by_one(builder, short)
        else:
            rows = self._make_room(builder, rows, set(short.tolist()))
            starts = table.scheduled[rows]
        builder.decode(rows, starts)

    def _decodable(self) -> Rows:
        """Rows past their prefill that have room for one more token, in order of arrival.

        Every position that is planned gives a token: a row whose planned ones reach its limit waits.
        """
        table = self._table
        rows = table.in_order()
        scheduled = table.scheduled[rows]
        return rows[(scheduled >= table.target[rows]) & (scheduled + 1 < table.total_limit[rows])]

    def _grow_by_one(self, builder: StepBuilder, rows: Rows) -> None:
        """One block more for each of the rows; the pool has them."""
        table = self._table
        ids = table.pool.take(len(rows))
        assert ids is not None
        indexes = table.blocks[rows]
        table.tables[rows, indexes] = ids
        table.blocks[rows] += 1
        builder.change_blocks(rows, indexes, ids)

    def _make_room(self, builder: StepBuilder, rows: Rows, short: set[int]) -> Rows:
        """The rows that can decode now, one after the other; those that need a block may take another's."""
        served: dict[int, None] = {}
        for row in rows.tolist():
            if not self._table.running[row]:
                continue
            if row not in short or self._grow_or_preempt(builder, row, served):
                served[row] = None
        return np.array(list(served), np.intp)

    def _grow_or_preempt(self, builder: StepBuilder, row: int, served: Iterable[int]) -> bool:
        """Find a block for a row's next token; false if the row itself has to go or to wait."""
        table = self._table
        while True:
            if table.pool.free:
                self._grow_by_one(builder, np.array([row]))
                return True
            if table.running_count == 1:
                if not table.in_flight[row]:
                    self._exhausted = row
                return False
            victim = self._victim(served)
            self._preempt(victim)
            if victim == row:
                return False

    def _victim(self, served: Iterable[int]) -> int:
        """Who loses least: fewest tokens to compute again, then the youngest. Never a row of this step."""
        table = self._table
        kept = set(served)

        def cost(row: int) -> tuple[bool, int, int]:
            often = table.request(row).preemptions >= MAX_PREEMPTIONS
            return often, int(table.committed[row]), -int(table.arrival[row])

        rows: list[int] = table.in_order().tolist()
        return min((row for row in rows if row not in kept), key=cost)

    def _preempt(self, row: int) -> None:
        """Take a row's blocks; its request keeps its known tokens and waits at its place of arrival."""
        request = self._table.request(row)
        self.preemptions += 1
        self.recomputed_tokens += int(self._table.committed[row])
        request.tokens = self._table.release(row)
        request.preemptions += 1
        request.phase = Phase.PREEMPTED
        self._waiting.add(request)
        self._admission.shortage()

    # Prefills

    def _prefills(self, builder: StepBuilder, budget: int) -> bool:
        """Chunks of the running prefills in order of arrival; true if one waits for blocks."""
        table = self._table
        rows = table.in_order()
        for row in rows[table.scheduled[rows] < table.target[rows]].tolist():
            size = self._chunk(builder, row, budget)
            if size == 0:
                break
            ids = table.grow(row, int(table.scheduled[row]) + size)
            if ids is None:
                return True
            self._add_chunk(builder, row, size, len(ids))
        return False

    def _chunk(self, builder: StepBuilder, row: int, budget: int) -> int:
        new = int(self._table.target[row] - self._table.scheduled[row])
        return chunk_size(new, builder.left, self._table.block_size, not builder.has_prefill, budget)

    def _add_chunk(self, builder: StepBuilder, row: int, size: int, new_blocks: int) -> None:
        table = self._table
        start = int(table.scheduled[row])
        held = int(table.blocks[row])
        indexes = np.arange(held - new_blocks, held)
        builder.change_blocks(np.full(new_blocks, row), indexes, table.tables[row, indexes])
        builder.chunk(row, start, table.tokens[row, start : start + size], start + size == table.target[row])

    def _admissions(self, builder: StepBuilder, budget: int) -> None:
        """Admit who fits, in order; the first who does not fit stops it."""
        table = self._table
        while builder.left and (request := self._waiting.head()) is not None:
            left = builder.left
            size = chunk_size(len(request.tokens), left, table.block_size, not builder.has_prefill, budget)
            if size == 0 or self._blocked_prefill(builder) or not self._admission.fits(request):
                return
            self._waiting.remove(request)
            table.admit(request)
            ids = table.grow(request.row, size)
            assert ids is not None, "a request that fits has blocks for its first chunk"
            builder.new_row(self._new_row(request))
            self._add_chunk(builder, request.row, size, len(ids))

    def _blocked_prefill(self, builder: StepBuilder) -> bool:
        """Whether a running prefill is not in the step: nobody may be admitted past it."""
        table = self._table
        rows = table.in_order()
        return any(row not in builder for row in rows[table.scheduled[rows] < table.target[rows]].tolist())

    def _new_row(self, request: Request) -> NewRow:
        """What the executor must know of a request that takes a row."""
        limits = request.limits
        if not limits.min_tokens:
            return NewRow(request.row, request.sampling)
        masked = limits.stop_token_ids + (() if limits.ignore_eos else self._eos_token_ids)
        return NewRow(request.row, request.sampling, request.prompt_tokens + limits.min_tokens, masked)
