"""Step slots: the arrays of a step plan and of its results, written once and read in place.

The scheduler fills a slot, sends a StepPlan that names it, and touches it no more until the StepDone
comes back; then it reads the results and may fill it again. Every executor rank reads the same bytes.

Per row, in plan order (all int32):

    row     the executor's row, 0..max_rows-1
    start   the position of the row's first token in this step
    count   how many tokens of it this step computes
    flags   SAMPLES: the row samples a token; LAST: its (only) token is the one that it sampled last

`tokens` holds the ids of all rows without LAST, one row after the other. Block tables travel as changes:
entry i sets entry block_index[i] of the table of row block_row[i] to block_id[i].
Results, per row in plan order: `sampled`, the token, where the row samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..common.errors import BadMessage
from .messages import StepPlan

Column = npt.NDArray[np.int32]

SAMPLES = 1
LAST = 2

_MIN_BLOCK_CHANGES = 1 << 16


@dataclass(frozen=True, slots=True)
class StepShape:
    """How much a step can hold at most."""

    max_rows: int
    max_tokens: int

    @property
    def max_blocks(self) -> int:
        """Changes of block tables in one step: a hit of a million tokens in blocks of 16 fits."""
        return max(_MIN_BLOCK_CHANGES, self.max_tokens + self.max_rows)

    @property
    def slot_words(self) -> int:
        return 5 * self.max_rows + self.max_tokens + 3 * self.max_blocks

    def memory_bytes(self, slots: int) -> int:
        """The memory that `slots` step slots take."""
        return 4 * slots * self.slot_words


@dataclass(frozen=True, slots=True)
class StepSlot:
    """The arrays of one slot; see the module's docstring."""

    row: Column
    start: Column
    count: Column
    flags: Column
    tokens: Column
    block_row: Column
    block_index: Column
    block_id: Column
    sampled: Column


def step_slots(memory: memoryview | bytearray, shape: StepShape, slots: int) -> tuple[StepSlot, ...]:
    """Views of `slots` step slots over memory of shape.memory_bytes(slots) bytes, private or shared."""
    rows, tokens, blocks = shape.max_rows, shape.max_tokens, shape.max_blocks
    sizes = [rows] * 4 + [tokens] + [blocks] * 3 + [rows]
    words = np.frombuffer(memory, np.int32, slots * shape.slot_words).reshape(slots, shape.slot_words)
    return tuple(StepSlot(*np.split(row, np.cumsum(sizes)[:-1])) for row in words)


def checked_slot(plan: StepPlan, slots: Sequence[StepSlot]) -> StepSlot:
    """The slot that a plan names. Raises BadMessage if the plan does not fit into it."""
    if not 0 <= plan.slot < len(slots):
        raise BadMessage(f"a plan in slot {plan.slot} of {len(slots)}")
    slot = slots[plan.slot]
    max_rows = len(slot.row)
    fits = 0 < plan.rows <= max_rows and 0 <= plan.tokens <= len(slot.tokens) and 0 <= plan.blocks <= len(slot.block_id)
    if not fits or not all(0 <= new.row < max_rows for new in plan.new_rows):
        raise BadMessage(f"a plan of {plan.rows} rows, {plan.tokens} tokens and {plan.blocks} blocks")
    return slot


def slots_for_depth(depth: int) -> int:
    """Slots that a pipeline of this depth needs: one for each open step and one being filled."""
    return depth + 1
