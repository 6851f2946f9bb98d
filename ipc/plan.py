"""Step slots: the arrays of a step plan and of its results, written once and read in place.

The scheduler fills a slot, sends a StepPlan that names it, and touches it no more until the StepDone
comes back; then it reads the results and may fill it again. Every executor rank reads the same bytes.

Per row, in plan order (all int32):

    row     the executor's row, 0..max_rows-1
    start   the position of the row's first token in this step
    count   how many tokens of it this step computes
    drafts  how many of these, at the end, are drafts to be verified
    flags   SAMPLES: the row samples a token after its tokens; LAST: its tokens are the one that it sampled last
            and the drafts that were made for it then, all in the executor's memory
    next    the known token after the row's tokens, or -1 where there is none
    delta   what is added to positions of a decode for models with three of them (mrope)

`tokens` holds the ids of all rows without LAST, one row after the other. Block tables travel as changes:
entry i sets entry block_index[i] of the table of row block_row[i] to block_id[i].

A row with LAST begins where its last step ended, which with drafts the scheduler may not know yet: `start` and
`count` are then the most that it can be, and the executor's own count of the row's positions holds.

Results, per row in plan order, with K the most drafts of a row:

    sampled   [rows, 1 + K]  the tokens that the row has sampled: accepted drafts, then one more
    produced  how many these are: 1..1+drafts where the row samples
    drafted   how many drafts, at most K, lie ready for the row's next step
    logprobs  [rows, 1 + K, 1 + 2 MAX_LOGPROBS], for rows that want them: words as in messages.Logprobs,
              as many as the row asked for
    prompt_logprobs  [max_tokens, 1 + 2 MAX_LOGPROBS], the same for the token that follows each of `tokens`, by place
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..common.errors import BadMessage
from ..common.types import MAX_LOGPROBS
from .messages import StepPlan

Column = npt.NDArray[np.int32]

SAMPLES = 1
LAST = 2

LOGPROB_WORDS = 1 + 2 * MAX_LOGPROBS

MAX_TOLD_BLOCKS = 1 << 16
"""A step can tell of so many blocks that rows have had before: a hit of a million tokens in blocks of 16."""


@dataclass(frozen=True, slots=True)
class StepShape:
    """How much a step can hold at most; `drafts` are those of one row."""

    max_rows: int
    max_tokens: int
    drafts: int = 0

    @property
    def max_blocks(self) -> int:
        """Changes of block tables in one step: what its own tokens need, and MAX_TOLD_BLOCKS that rows had before."""
        return MAX_TOLD_BLOCKS + self.max_tokens + (2 + self.drafts) * self.max_rows

    @property
    def arrays(self) -> dict[str, tuple[int, ...]]:
        """The shapes of a slot's arrays, in the order in which they lie in memory."""
        rows, produced = (self.max_rows,), (self.max_rows, 1 + self.drafts)
        return {
            **dict.fromkeys(("row", "start", "count", "drafts", "flags", "next", "delta"), rows),
            "tokens": (self.max_tokens,),
            **dict.fromkeys(("block_row", "block_index", "block_id"), (self.max_blocks,)),
            "sampled": produced,
            "produced": rows,
            "drafted": rows,
            "logprobs": (*produced, LOGPROB_WORDS),
            "prompt_logprobs": (self.max_tokens, LOGPROB_WORDS),
        }

    @property
    def slot_words(self) -> int:
        return sum(math.prod(shape) for shape in self.arrays.values())

    def memory_bytes(self, slots: int) -> int:
        """The memory that `slots` step slots take."""
        return 4 * slots * self.slot_words


@dataclass(frozen=True, slots=True)
class StepSlot:
    """The arrays of one slot; see the module's docstring."""

    row: Column
    start: Column
    count: Column
    drafts: Column
    flags: Column
    next: Column
    delta: Column
    tokens: Column
    block_row: Column
    block_index: Column
    block_id: Column
    sampled: Column
    produced: Column
    drafted: Column
    logprobs: Column
    prompt_logprobs: Column


def step_slots(memory: memoryview | bytearray, shape: StepShape, slots: int) -> tuple[StepSlot, ...]:
    """Views of `slots` step slots over memory of shape.memory_bytes(slots) bytes, private or shared."""
    words = np.frombuffer(memory, np.int32, slots * shape.slot_words).reshape(slots, shape.slot_words)
    return tuple(_slot(row, shape) for row in words)


def _slot(words: Column, shape: StepShape) -> StepSlot:
    ends = np.cumsum([math.prod(of_array) for of_array in shape.arrays.values()])
    parts = np.split(words, ends[:-1])
    return StepSlot(
        **{name: part.reshape(of_array) for (name, of_array), part in zip(shape.arrays.items(), parts, strict=True)}
    )


def checked_slot(plan: StepPlan, slots: Sequence[StepSlot]) -> StepSlot:
    """The slot that a plan names. Raises BadMessage if the plan does not fit into it."""
    if not 0 <= plan.slot < len(slots):
        raise BadMessage(f"a plan in slot {plan.slot} of {len(slots)}")
    slot = slots[plan.slot]
    max_rows = len(slot.row)
    fits = 0 < plan.rows <= max_rows and 0 <= plan.tokens <= len(slot.tokens) and 0 <= plan.blocks <= len(slot.block_id)
    fits = fits and all(0 <= chunk.index < plan.rows for chunk in plan.media)
    if not fits or not all(0 <= new.row < max_rows for new in plan.new_rows):
        raise BadMessage(f"a plan of {plan.rows} rows, {plan.tokens} tokens and {plan.blocks} blocks")
    return slot


def slots_for_depth(depth: int) -> int:
    """Slots that a pipeline of this depth needs: one for each open step and one being filled."""
    return depth + 1
