"""What happens at an admission: a request gets a row, the blocks of its hits, a state slot; or its KV is fetched."""

from __future__ import annotations

import numpy as np

from ....ipc.messages import RemoteKv
from ..cache.prefix_cache import PrefixCache
from ..request import Request
from ..rows import NO_FIRST_TOKEN, RowTable
from ..state.checkpoints import Checkpoints
from ..state.state_slots import NO_SLOT
from ..statistics import CacheStats, Statistics
from ..transfer.connector import Connector
from ..waiting import WaitingLine
from .admission import Probe
from .step import StepBuilder

NO_BLOCKS = np.zeros(0, np.int32)
NOTHING_CACHED = Probe(0, 0, 0, 0, 0)


class Admitter:
    """Moves requests from the waiting line into the row table."""

    def __init__(
        self,
        table: RowTable,
        waiting: WaitingLine,
        cache: PrefixCache,
        checkpoints: Checkpoints,
        connector: Connector,
        statistics: Statistics,
        cache_stats: CacheStats,
    ) -> None:
        self._table = table
        self._waiting = waiting
        self._cache = cache
        self._checkpoints = checkpoints
        self._connector = connector
        self._statistics = statistics
        self._cache_stats = cache_stats

    def admit(self, builder: StepBuilder, request: Request, probe: Probe, now: float) -> None:
        """Give a waiting request a row, and the blocks of its hits."""
        table, pool = self._table, self._table.pool
        self._waiting.remove(request)
        request.bypassed = 0
        hits = probe.hits
        blocks = pool.find(request.digests[:hits]) if hits and request.digests else NO_BLOCKS
        pool.hold(blocks)
        slot = NO_SLOT
        if request.needs_state:
            slot = self._checkpoints.take_slot(request, builder, hits, probe.found)
        table.admit(request, blocks, slot)
        if request.admitted:
            self._statistics.recomputed_tokens += max(0, request.computed_tokens - hits * table.block_size)
        else:
            self._count(request, hits * table.block_size, now)
        self._cache.hold_for_siblings(request, blocks, 0)

    def _count(self, request: Request, cached_tokens: int, now: float) -> None:
        """Book a first admission."""
        request.admitted = True
        request.cached_tokens = cached_tokens
        statistics = self._statistics
        statistics.admissions += 1
        statistics.queue_seconds += round(1e9 * max(0.0, now - request.arrived_s))
        if self._cache.enabled and request.takes_hits:
            self._cache_stats.update(cached_tokens, request.prompt_tokens)
        self._cache.leave(request)

    def receive(self, builder: StepBuilder, request: Request, now: float) -> None:
        """Give a waiting request a row and blocks for all of its tokens, and start the transfer into them."""
        self.admit(builder, request, NOTHING_CACHED, now)
        self.start_receiving(request, now)

    def start_receiving(self, request: Request, now: float) -> None:
        """Park a request that has a row until its KV is there. The pool must have the blocks that it lacks."""
        table, row = self._table, request.row
        assert not table.in_flight[row], "an open step may write into blocks that are received"
        grown = table.grow(np.array([row]), table.target[[row]])
        assert grown and request.remote is not None
        table.park(row, *self._arriving(request, request.remote))
        blocks = table.tables[row, : table.blocks[row]].copy()
        self._connector.receive(request.rid, request.attempt, blocks, request.remote, now)

    def _arriving(self, request: Request, remote: RemoteKv) -> tuple[int, int]:
        """How many tokens of a request that has a row are committed when its KV comes, and its first output then.

        A first token has no log-probability, and obeyed no grammar: who wants that has it sampled here. Without a first
        token the last token of the prompt is computed here.
        """
        table, row = self._table, request.row
        received, length = self._connector.match(request.prompt_tokens, remote), int(table.length[row])
        sampled_here = table.wants_logprobs[row] or request.sampling.needs_history
        has_room = length < table.token_limit[row] and not sampled_here
        if has_room and remote.first_token >= 0 and received >= request.prompt_tokens == length:
            return received, remote.first_token
        return min(received, int(table.target[row]) - 1), NO_FIRST_TOKEN
