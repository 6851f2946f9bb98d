"""Filling one step: in which order decodes, chunks of prefills and admissions share its token budget.

Decodes first is the default, so that a long prompt never stops a running stream; with `prefill_first` the
prompts go first and decodes get the rest. Decodes that find no block preempt others; prefill chunks never do.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ...ipc.messages import MediaChunk, NewRow
from .admission import Admission, Ledger, Probe
from .checkpoints import Checkpoints
from .decodes import Decodes
from .media import media_chunk
from .policy import Policy
from .preemption import Preemption
from .prefills import MAX_BYPASSED, Admit, Blocked, Bypass, Chunk, Decision, Gates, Prefills, Receive
from .prefix_cache import PrefixCache
from .request import Request
from .rows import NO_STATE_SLOT, RowTable
from .statistics import CacheStats, Statistics
from .step import NO_TOKEN, StepBuilder
from .transfer import Connector
from .waiting import WaitingLine

NO_BLOCKS = np.zeros(0, np.int32)
NOTHING_CACHED = Probe(0, 0, 0, 0, 0)


class Planner:
    """Plans for one row table: decides, and does what was decided to requests, rows and blocks."""

    def __init__(
        self,
        table: RowTable,
        waiting: WaitingLine,
        admission: Admission,
        preemption: Preemption,
        decodes: Decodes,
        prefills: Prefills,
        cache: PrefixCache,
        checkpoints: Checkpoints,
        connector: Connector,
        policy: Policy,
        eos_token_ids: tuple[int, ...],
        statistics: Statistics,
        cache_stats: CacheStats,
        stateful: bool,
    ) -> None:
        self._table = table
        self._waiting = waiting
        self._admission = admission
        self._preemption = preemption
        self._decodes = decodes
        self._prefills = prefills
        self._cache = cache
        self._checkpoints = checkpoints
        self._connector = connector
        self._policy = policy
        self._eos_token_ids = eos_token_ids
        self._statistics = statistics
        self._cache_stats = cache_stats
        self._stateful = stateful
        self._overdue: Request | None = None

    def fill(self, builder: StepBuilder, gates: Gates, *, idle: bool, now: float) -> None:
        """Put into a step what the budget holds. `idle`: no step is open, so nothing else will free blocks."""
        before = self._statistics.preemptions
        if self._overdue is not None:
            self._serve_overdue(builder, gates, now)
        if self._policy.prefill_first:
            self._decodes.plan(builder, overdue_only=True)
            blocked = self._plan_prefills(builder, gates, now)
            self._decodes.plan(builder)
        else:
            self._decodes.plan(builder)
            blocked = self._plan_prefills(builder, gates, now)
        while blocked and idle and builder.empty:
            self._preemption.preempt(int(self._table.prefills()[-1]))
            blocked = self._plan_prefills(builder, gates, now)
        self._introduce(builder)
        if self._statistics.preemptions == before and not builder.empty:
            self._admission.stepped()

    def _serve_overdue(self, builder: StepBuilder, gates: Gates, now: float) -> None:
        """First of all the prompt that has let others pass too often."""
        request, self._overdue = self._overdue, None
        if request is not None and request.waits:
            ledger = self._admission.ledger(builder.budget, builder.left)
            self._act(builder, self._prefills.decide(ledger, gates, only=request), ledger, now)

    def _plan_prefills(self, builder: StepBuilder, gates: Gates, now: float) -> bool:
        """True if a running prefill finds no blocks."""
        if not (len(self._waiting) or len(self._table.prefills())):
            return False
        ledger = self._admission.ledger(builder.budget, builder.left, builder.has_prefill)
        return self._act(builder, self._prefills.decide(ledger, gates), ledger, now)

    def _act(self, builder: StepBuilder, decisions: Iterable[Decision], ledger: Ledger, now: float) -> bool:
        for decision in decisions:
            match decision:
                case Chunk(row, size):
                    self._add_chunk(builder, row, size)
                case Admit(request, probe, size):
                    self._admit(builder, request, probe, now)
                    self._add_chunk(builder, request.row, size)
                case Receive(request):
                    self._receive(builder, request, now)
                case Bypass(request):
                    self._bypass(request)
                case Blocked():
                    return True
            let_go = self._table.pool.free - ledger.free  # what was held for choices, by the last that is admitted
            assert let_go >= 0, "decision and deed differ"
            ledger.free += let_go
            ledger.spare += let_go
        return False

    def _bypass(self, request: Request) -> None:
        request.bypassed += 1
        if request.bypassed >= MAX_BYPASSED and self._overdue is None:
            self._overdue = request

    # Admissions

    def _admit(self, builder: StepBuilder, request: Request, probe: Probe, now: float) -> None:
        """Give a waiting request a row, and the blocks of its hits."""
        table, pool = self._table, self._table.pool
        self._waiting.remove(request)
        request.bypassed = 0
        hits = probe.hits
        blocks = pool.find(request.digests[:hits]) if hits and request.digests else NO_BLOCKS
        pool.hold(blocks)
        slot = NO_STATE_SLOT
        if request.needs_state:
            slot = self._checkpoints.take_slot(request, builder, hits, probe.found)
        table.admit(request, blocks, slot)
        self._count(request, hits * table.block_size, now)

    def _count(self, request: Request, cached_tokens: int, now: float) -> None:
        """Book a first admission."""
        if request.admitted:
            return
        request.admitted = True
        request.cached_tokens = cached_tokens
        statistics = self._statistics
        statistics.admissions += 1
        statistics.queue_seconds += round(1e9 * max(0.0, now - request.arrived_s))
        if request.digests is not None:
            self._cache_stats.update(cached_tokens, request.prompt_tokens)
        self._cache.leave(request)

    def _receive(self, builder: StepBuilder, request: Request, now: float) -> None:
        """Give a waiting request a row and blocks for all of its tokens, and start the transfer into them."""
        self._admit(builder, request, NOTHING_CACHED, now)
        self.start_receiving(request, now)

    def start_receiving(self, request: Request, now: float) -> None:
        """Park a request that has a row until its KV is there. The pool must have the blocks that it lacks."""
        table, row = self._table, request.row
        assert not table.in_flight[row], "an open step may write into blocks that are received"
        grown = table.grow(np.array([row]), table.target[[row]])
        assert grown and request.remote is not None
        table.park(row)
        blocks = table.tables[row, : table.blocks[row]].copy()
        self._connector.receive(request.rid, request.attempt, blocks, request.remote, now)

    # Rows of the step

    def _add_chunk(self, builder: StepBuilder, row: int, size: int) -> None:
        table = self._table
        start = int(table.scheduled[row])
        end = start + size
        if self._stateful:
            self._checkpoints.keep(builder, row, start)  # who is admitted after it may resume there
        grown = table.grow(np.array([row]), np.array([end]))
        assert grown, "what was decided has blocks"
        target = int(table.target[row])
        last = end == target
        builder.chunk(
            row,
            start,
            table.tokens[row, start:end],
            samples=last and target < table.token_limit[row],
            following=NO_TOKEN if last else int(table.tokens[row, end]),
            media=self._media(builder, row, start, size),
        )

    def _media(self, builder: StepBuilder, row: int, start: int, size: int) -> MediaChunk | None:
        request = self._table.request(row)
        if not (request.images or request.mrope):
            return None
        begun = int(self._table.begun[row])
        return media_chunk(builder.next_index, request.images, request.mrope, request.mrope_delta, begun, start, size)

    def _introduce(self, builder: StepBuilder) -> None:
        """Tell the executor what it does not know of the rows in the step: new requests, blocks, checkpoints due."""
        table, rows = self._table, builder.rows
        for row, start in zip(rows.tolist(), builder.starts.tolist(), strict=True) if self._stateful else ():
            self._checkpoints.keep(builder, row, start)
        for row in rows[~table.introduced[rows]].tolist():
            builder.new_row(self._new_row(table.request(row)))
        table.introduced[rows] = True
        unsent = table.blocks[rows] - table.sent_blocks[rows]
        if unsent.any():
            owners = np.repeat(rows, unsent)
            within = np.arange(len(owners)) - np.repeat(np.cumsum(unsent) - unsent, unsent)
            indexes = table.sent_blocks[owners] + within
            builder.change_blocks(owners, indexes, table.tables[owners, indexes])
            table.sent_blocks[rows] = table.blocks[rows]

    def _new_row(self, request: Request) -> NewRow:
        """What the executor must know of a request that takes a row."""
        limits, slot = request.limits, int(self._table.state_slot[request.row])
        if not limits.min_tokens:
            return NewRow(request.row, request.seed, request.sampling, state_slot=slot)
        masked = limits.stop_token_ids + (() if limits.ignore_eos else self._eos_token_ids)
        masked_until = request.prompt_tokens + limits.min_tokens
        return NewRow(request.row, request.seed, request.sampling, masked_until, masked, slot)
