"""Checkpoints of recurrent state: when they are taken, and how a request resumes from one.

A prefix hit is worth something to a model with state only where the state was kept as well. It is kept on a grid of
the prompt, and where a second request found blocks and no state. Chunks are cut there; the copy is made before the
next step of the row, in plan order.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..cache.blocks import BlockPool
from ..planning.step import StepBuilder
from ..request import Request
from ..rows import RowTable
from .state_slots import NO_SLOT, StateSlots, next_cut

MAX_WISHES = 1024
"""So many places where a checkpoint was missed are remembered, the youngest."""


class Checkpoints:
    """The state of one row table's requests. For a model without state nothing here does anything."""

    def __init__(self, table: RowTable, pool: BlockPool, slots: StateSlots, interval: int) -> None:
        self._table = table
        self._pool = pool
        self._slots = slots
        self._interval = interval
        self._wishes: dict[bytes, None] = {}

    def usable_hits(self, request: Request, hits: int) -> int:
        """How many of `hits` blocks a request can resume behind."""
        assert request.digests is not None
        return self._deepest(request.digests, hits)[0]

    def _deepest(self, digests: Sequence[bytes], hits: int) -> tuple[int, int]:
        """The depth and block of the deepest checkpoint behind one of a chain's first `hits` blocks; depth 0 if none.

        There are fewer checkpoints than blocks in a long prompt: this costs the same however long it is.
        """
        digest = self._pool.digest
        found = (one for one in self._slots.checkpoints() if one[0] <= hits and digest(one[1]) == digests[one[0] - 1])
        return max(found, default=(0, 0))

    def cut(self, request: Request, start: int, size: int, found: int = 0) -> int:
        """A chunk's size, shortened to end where a checkpoint is due.

        The cache had `found` blocks for a request that is to be admitted: it will wish for a checkpoint behind them.
        """
        block = self._table.block_size
        wishes = [found * block, *self._wished(request, start, start + size)]
        interval = self._interval if self._interval % block == 0 else 0
        cut = next_cut(start, request.prompt_tokens, interval, wishes)
        return size if cut is None else min(size, cut - start)

    def _wished(self, request: Request, start: int, end: int) -> list[int]:
        """Where others want to resume: behind start up to `end` those who missed a checkpoint, and in all of its
        prompt the choices that wait.
        """
        block = self._table.block_size
        places = []
        if self._wishes and request.digests:
            first = start // block
            digests = request.digests[first : end // block]
            places = [(first + 1 + at) * block for at, digest in enumerate(digests) if digest in self._wishes]
        if request.siblings is not None and request.siblings.fresh:
            places.append((request.prompt_tokens - 1) // block * block)
        return places

    def take_slot(self, request: Request, builder: StepBuilder, hits: int, found: int) -> int:
        """A slot for a request that is admitted behind `hits` blocks, of `found` that the cache had."""
        digests = request.digests or []
        if found > hits:
            self._wishes[digests[found - 1]] = None
            while len(self._wishes) > MAX_WISHES:
                del self._wishes[next(iter(self._wishes))]
        source = self._slots.at(self._deepest(digests, hits)[1]) if hits else None
        slot = self._slots.take()
        assert slot is not None, "a request that fits has a slot"
        if source is not None and source != slot:
            builder.copy_state(source, slot)
        return slot

    def keep(self, builder: StepBuilder, row: int, start: int) -> None:
        """Take a checkpoint of a row that goes on from `start`, if one is due there."""
        slot, size = int(self._table.state_slot[row]), self._table.block_size
        if slot == NO_SLOT or not start or start % size or not self._is_due(row, start):
            return
        depth = start // size
        target = self._slots.checkpoint(int(self._table.tables[row, depth - 1]), depth)
        if target is not None:
            builder.copy_state(slot, target)

    def _is_due(self, row: int, start: int) -> bool:
        request = self._table.request(row)
        if start > request.prompt_tokens or request.digests is None:
            return False
        on_grid = self._interval > 0 and start % self._interval == 0
        return on_grid or start in self._wished(request, start - self._table.block_size, start)

    def release(self, row: int) -> None:
        """A row ends: its slot is free, and checkpoints of blocks that were never published are void."""
        table, slot = self._table, int(self._table.state_slot[row])
        if slot == NO_SLOT:
            return
        unpublished = table.tables[row, table.published[row] : table.blocks[row]].tolist()
        self._slots.drop(block for block in unpublished if self._pool.digest(block) is None)
        self._slots.release(slot)
        table.state_slot[row] = NO_SLOT
