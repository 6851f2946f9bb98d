"""Whether a waiting request may join the running ones now.

A request is admitted when the pool can hold all of its known tokens beside what was promised to the
prefills that run, and still has headroom: room for every running request to go on for a while. Without
headroom the pool would be full at the next block boundary, and somebody preempted again and again.

The ledger is what one plan has to spend. Planning and forecasting spend from it by the same rules; only planning
also acts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ....ipc.plan import MAX_TOLD_BLOCKS
from ..cache.blocks import BlockPool, blocks_for
from ..request import Request
from ..rows import RowTable
from ..state.checkpoints import Checkpoints
from ..state.state_slots import StateSlots

MAX_NEW_ROW_BYTES = 8 << 20
"""What a step can tell of the sampling of new rows: the message must stay well below the largest frame."""

CALM_STEPS = 256
"""So many steps without a shortage of blocks remove the cap that a preemption left."""


@dataclass(slots=True)
class Ledger:
    """What is left to spend: tokens of the step, free blocks, rows, state slots.

    `spare` are the free blocks beyond what is promised to running prefills and kept as headroom; while nothing
    runs there is no headroom. `told`: blocks that rows had before and that the step can tell the executor. `prefills`
    counts the prefill rows of the step; `new_row_bytes`: what its message may still say of new ones.
    """

    budget: int
    tokens: int
    free: int
    spare: int
    rows: int
    state_slots: int
    running: int
    told: int
    prefills: int = 0
    new_row_bytes: int = MAX_NEW_ROW_BYTES

    def spend_chunk(self, tokens: int, blocks: int) -> None:
        self.tokens -= tokens
        self.free -= blocks
        self.prefills += 1


@dataclass(frozen=True, slots=True)
class Probe:
    """What the prefix cache has for a waiting request, and what it would take.

    `hits`: blocks of the cache to resume from, of which `held` are in use; `found`: those there would be if its state
    were kept, too; `target`: blocks of all of its tokens; `headroom`: blocks for its next tokens.
    """

    hits: int
    held: int
    found: int
    target: int
    headroom: int

    @property
    def without_hits(self) -> Probe:
        """What the request takes if it is not to share a block."""
        return Probe(0, 0, 0, self.target, self.headroom)


class Admission:
    """Answers for one row table and pool. After a shortage it lets fewer run for a while."""

    def __init__(
        self,
        table: RowTable,
        pool: BlockPool,
        state_slots: StateSlots,
        checkpoints: Checkpoints,
        max_rows: int,
        lookahead: int,
    ) -> None:
        self._table = table
        self._pool = pool
        self._state_slots = state_slots
        self._checkpoints = checkpoints
        self._max_rows = max_rows
        self._lookahead = lookahead
        self._cap = max_rows
        self._calm_steps = 0

    def ledger(self, budget: int, tokens: int, prefills: int = 0, told: int = MAX_TOLD_BLOCKS) -> Ledger:
        """What a step of `budget` tokens has to spend, when `tokens` of them are left."""
        table = self._table
        rows = table.in_order()
        taken = table.taken
        size = table.block_size
        held = np.maximum(table.blocks[rows], -(-table.target[rows] // size))
        promised = int((held - table.blocks[rows]).sum())
        ahead = -(-np.minimum(table.length[rows] + self._lookahead, table.token_limit[rows]) // size)
        headroom = int(np.maximum(ahead - held, 0).sum())
        free = self._pool.free
        return Ledger(
            budget,
            tokens,
            free,
            free - promised - headroom,
            min(self._cap, self._max_rows) - taken,
            self._state_slots.free,
            len(rows),
            told,
            prefills,
        )

    def probe(self, request: Request) -> Probe:
        """What a request would take. No side effect."""
        size = self._table.block_size
        known = len(request.tokens)
        hits, held, found = self._hits(request)
        ahead = min(known + self._lookahead, request.token_limit)
        target = blocks_for(known, size)
        return Probe(hits, held, found, target, max(0, blocks_for(ahead, size) - target))

    def _hits(self, request: Request) -> tuple[int, int, int]:
        if not request.takes_hits:
            return 0, 0, 0
        assert request.digests is not None
        most = (len(request.tokens) - 1) // self._table.block_size  # the last token is always computed
        found = self._pool.probe(request.digests, most)
        hits = self._checkpoints.usable_hits(request, found.blocks) if request.needs_state else found.blocks
        return hits, min(hits, found.held), found.blocks

    def fits(self, request: Request, probe: Probe, ledger: Ledger) -> bool:
        """Whether a request that was probed may be admitted. No side effect."""
        if ledger.rows <= 0 or ledger.new_row_bytes <= 0 or (request.needs_state and ledger.state_slots <= 0):
            return False
        if ledger.running == 0:
            return probe.target - probe.held <= ledger.free
        return ledger.spare - (probe.target - probe.held) >= probe.headroom

    def spend_receive(self, request: Request, probe: Probe, ledger: Ledger) -> None:
        """Book an admission whose blocks are all taken at once, to be filled from elsewhere."""
        ledger.free -= probe.target
        ledger.spare -= probe.target + probe.headroom
        ledger.rows -= 1
        ledger.state_slots -= request.needs_state

    def spend(self, request: Request, probe: Probe, ledger: Ledger, tokens: int, blocks: int) -> None:
        """Book an admission whose first chunk takes so many tokens and so many blocks beyond the hits."""
        ledger.told -= probe.hits
        ledger.new_row_bytes -= _new_row_bytes(request)
        ledger.spend_chunk(tokens, blocks + probe.hits - probe.held)
        ledger.spare -= probe.target - probe.held + probe.headroom
        ledger.rows -= 1
        ledger.running += 1
        ledger.state_slots -= request.needs_state

    def shortage(self) -> None:
        """A request was preempted: no more may run than are left now."""
        self._cap = max(1, self._table.taken)
        self._calm_steps = 0

    def finished(self, requests: int) -> None:
        """Requests ended by themselves: each makes room for one more."""
        self._cap = min(self._max_rows, self._cap + requests)

    def stepped(self) -> None:
        """A step was planned without a shortage."""
        self._calm_steps += 1
        if self._calm_steps >= CALM_STEPS:
            self._cap = self._max_rows


def _new_row_bytes(request: Request) -> int:
    """About how many bytes a step's message needs to introduce a request: biases, masked ids, grammar and history
    are what is long.
    """
    sampling = request.sampling
    size = 150 + 14 * len(sampling.biased) + 5 * len(request.limits.stop_token_ids) + len(sampling.grammar.encode())
    if sampling.needs_history:
        size += 4 * (len(request.tokens) - request.prompt_tokens)
    if sampling.repetition_penalty != 1:
        size += 4 * request.prompt_tokens
    return size
