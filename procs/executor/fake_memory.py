"""The memory of the fake executor: a KV cache whose entries are hashes, state slots that hold one each, and images.

It is honest: what was not written cannot be read, and what is read is what was written last. A position without a
block, and an image that nobody has brought, are refused with an AssertionError: the planner is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ...ipc.messages import Hello, Image, NewRow, StepPlan
from ...ipc.plan import StepSlot
from .fake_text import ROOT, Hashes, Indices


class FakeMemory:
    """Blocks, state slots, and who reads them through which table."""

    def __init__(self, hello: Hello, max_rows: int) -> None:
        self._block_size = hello.block_size
        self._cache = np.zeros(hello.num_blocks * hello.block_size, np.uint64)
        self._tables = np.full((max_rows, -(-hello.max_model_len // hello.block_size)), -1, np.int64)
        self._states = np.zeros(hello.state_slots, np.uint64)
        self._state_slot = np.full(max_rows, -1, np.int64)
        self._images: dict[int, set[tuple[str, int]]] = {}

    def take(self, plan: StepPlan, slot: StepSlot) -> None:
        """Do what a plan wants done before its step."""
        for new in plan.new_rows:
            self._begin(new)
        changes = slice(0, plan.blocks)
        self._tables[slot.block_row[changes], slot.block_index[changes]] = slot.block_id[changes]
        for source, target in np.frombuffer(plan.state_copies, np.int32).reshape(-1, 2).tolist():
            self._states[target] = self._states[source]

    def _begin(self, new: NewRow) -> None:
        assert -1 <= new.state_slot < len(self._states), "a state slot that is not there was planned"
        self._tables[new.row] = -1
        self._state_slot[new.row] = new.state_slot
        self._images[new.row] = set()

    def before(self, rows: Indices, starts: Indices) -> Hashes:
        """The hashes of the positions before these.

        With a state slot both it and the cache must hold it: where they differ the text goes astray.
        """
        cached = self._cache[self._places(rows, np.maximum(starts - 1, 0))]
        slots = self._state_slot[rows]
        stateful = slots >= 0
        state = self._states[slots[stateful]]
        cached[stateful] = state ^ (cached[stateful] - state)
        return np.where(starts == 0, ROOT, cached)

    def write(self, rows: Indices, positions: Indices, hashes: Hashes) -> None:
        """Write the cache's entries of these positions."""
        self._cache[self._places(rows, positions)] = hashes

    def keep(self, rows: Indices, hashes: Hashes) -> None:
        """The state of each row after its step: the hash of the last position that is final."""
        slots = self._state_slot[rows]
        self._states[slots[slots >= 0]] = hashes[slots >= 0]

    def _places(self, rows: Indices, positions: Indices) -> npt.NDArray[np.int64]:
        blocks = self._tables[rows, positions // self._block_size]
        assert (blocks >= 0).all(), "a position without a block was planned"
        return blocks * self._block_size + positions % self._block_size

    def see(self, row: int, images: Sequence[Image]) -> None:
        """A chunk of a row looks at images, which bring their data the first time."""
        for image in images:
            key = (image.identity, image.offset)
            assert image.data or key in self._images[row], f"image {image.identity} came without its data"
            self._images[row].add(key)
