"""Slots for state that is not KV: one for each request of a model with recurrent or rolling state.

Slots that no request needs hold checkpoints: copies of the state at the end of a published KV block, from which
another request with the same prefix goes on. A prefix hit is worth nothing to such a model where there is no
checkpoint. The pool knows no request and copies nothing: it says which slot to copy to, and the executor
copies in the order of the plan, so a slot that is given away may still be copied from by what was planned before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from ....ipc.plan import Column

NO_SLOT = -1
"""The slot of a request without state."""


class StateSlots:
    """Slots 0..count-1, each vacant, a checkpoint, or held by a request. `count` is 0 for a stateless model."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._vacant = list(range(count - 1, -1, -1))  # the last one is given out next
        self._checkpoints: dict[int, int] = {}  # block to slot, oldest first
        self._depths: dict[int, int] = {}  # of the same blocks

    @property
    def free(self) -> int:
        """Slots that requests may take. Checkpoints give way, so they count."""
        return len(self._vacant) + len(self._checkpoints)

    def take(self) -> int | None:
        """A slot for a request: the one freed last, else that of the oldest checkpoint; None if all are held.

        A request that resumes from a checkpoint asks `at` first. It may be given that very slot, which then
        needs no copy.
        """
        return self._vacant.pop() if self._vacant else self._evict()

    def _evict(self) -> int | None:
        oldest = next(iter(self._checkpoints), None)
        return None if oldest is None else self._forget(oldest)

    def _forget(self, block: int) -> int:
        del self._depths[block]
        return self._checkpoints.pop(block)

    def release(self, slot: int) -> None:
        """Give a request's slot back."""
        self._vacant.append(slot)

    def checkpoint(self, block: int, depth: int) -> int | None:
        """A slot to copy the state at the end of a KV block into, now its checkpoint. The block is number `depth` of
        its chain, from 1 on.

        None if the block has one, or if requests hold all slots.
        """
        if block in self._checkpoints:
            return None
        slot = self.take()
        if slot is not None:
            self._checkpoints[block] = slot
            self._depths[block] = depth
        return slot

    def at(self, block: int) -> int | None:
        """The slot with the checkpoint at the end of a block, if there is one."""
        return self._checkpoints.get(block)

    def checkpoints(self) -> Iterator[tuple[int, int]]:
        """The depth of each checkpoint and its block, in no order that matters."""
        return ((depth, block) for block, depth in self._depths.items())

    def drop(self, blocks: Iterable[int]) -> None:
        """The contents of these blocks are gone from the cache, and their checkpoints with them."""
        for block in blocks:
            if block in self._checkpoints:
                self._vacant.append(self._forget(block))

    def clear(self) -> None:
        """No checkpoint is valid any more."""
        self.drop(list(self._checkpoints))

    def check(self, held: Iterable[int]) -> None:
        """Compare the books with the slots that requests say they hold; raises AssertionError."""
        everywhere = [*self._vacant, *self._checkpoints.values(), *held]
        assert sorted(everywhere) == list(range(self.count)), "a state slot was lost or given out twice"
        assert self._depths.keys() == self._checkpoints.keys(), "two truths about a checkpoint"


def rows_base(slot: int, drafts: int) -> int:
    """The first state row of a slot, which spans one row for the token and one for each draft; -1 for NO_SLOT."""
    return NO_SLOT if slot == NO_SLOT else slot * (1 + drafts)


def row_bases(slots: Iterable[int], drafts: int) -> Column:
    """`rows_base` of the slots of a step's rows, int32 [rows]."""
    return np.array([rows_base(slot, drafts) for slot in slots], np.int32)


def next_cut(position: int, prompt_tokens: int, interval: int, wishes: Iterable[int]) -> int | None:
    """Where a prefill that has reached `position` must pause next for a checkpoint; None if nowhere.

    It pauses at every multiple of `interval` (0: at none), up to the end of the prompt, and at each of the
    `wishes`: the ends of hits that other requests could not use for want of one. All are at ends of blocks.
    """
    cuts = [wish for wish in wishes if position < wish <= prompt_tokens]
    if interval:
        cuts.append((position // interval + 1) * interval)
    cut = min(cuts, default=prompt_tokens + 1)
    return cut if cut <= prompt_tokens else None
