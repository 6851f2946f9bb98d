"""Whether a plan keeps to what the executor has: asked for each plan, before it changes anything, for every backend.

Behind this, kernels index memory by a plan's numbers and check nothing. What is not looked at here may be anything:
token ids (unknown.py) and what a row asks of the sampler fail row by row. Knows neither torch nor the model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np

from ...common.errors import BadMessage
from ...ipc.messages import Hello, StepPlan
from ...ipc.plan import LAST, Column, StepSlot, checked_slot
from .cursors import Cursors

Rule = tuple[bool, str]
"""Whether a plan keeps to it, and what a plan has that does not."""


def checked_plan(plan: StepPlan, slots: Sequence[StepSlot], hello: Hello, cursors: Cursors) -> StepSlot:
    """The slot that a plan names. Raises BadMessage, which says what is wrong, if the plan cannot be run.

    Takes some 40 us, for one row as for 256.
    """
    slot = checked_slot(plan, slots)
    for kept, fault in chain(_of_tables(plan, slot, hello), _of_rows(plan, slot, hello, cursors)):
        if not kept:
            raise BadMessage(f"a plan with {fault}")
    return slot


def _of_tables(plan: StepPlan, slot: StepSlot, hello: Hello) -> Iterator[Rule]:
    told = slice(0, plan.blocks)
    entries = -(-hello.max_model_len // hello.block_size)
    yield _all_below(len(slot.row), slot.block_row[told]), "a block for a row that is not there"
    yield _all_below(entries, slot.block_index[told]), "a block behind the end of a block table"
    yield _all_below(hello.num_blocks, slot.block_id[told]), "a block that is not there"


def _of_rows(plan: StepPlan, slot: StepSlot, hello: Hello, cursors: Cursors) -> Iterator[Rule]:
    """Each rule may rely on those before it."""
    columns = (slot.row, slot.start, slot.count, slot.drafts, slot.flags)
    row, start, count, drafts, flags = (column[: plan.rows] for column in columns)
    yield _all_below(len(slot.row), row), "a row that is not there"
    yield np.bincount(row).max() == 1, "a row that is in it twice"
    yield _all_below(hello.max_model_len, start), "a position beyond the model's length"
    yield bool((count > 0).all()), "a row without tokens"
    yield bool((start <= hello.max_model_len - count).all()), "tokens beyond the model's length"
    yield count.sum() <= len(slot.tokens), "more tokens than a step may have"
    last = (flags & LAST) != 0
    yield count[~last].sum() == plan.tokens, "rows of other tokens than it brings"
    yield bool(((drafts >= 0) & (drafts < count)).all()), "more drafts than tokens"
    yield _all_below(cursors.most_drafts + 1, drafts), "more drafts than a row may have"
    new = [one.row for one in plan.new_rows]  # whose cursors are still those of the requests before
    length = np.where(np.isin(row[last], new), 0, cursors.length[row[last]])
    yield bool((length > 0).all()), "a row that has sampled nothing and goes on from its last token"
    yield bool((length <= start[last]).all()), "a start below the most that it can be"


def _all_below(bound: int, column: Column) -> bool:
    """Whether all are in 0..bound-1; a negative one is a large one without its sign."""
    return bool(column.view(np.uint32).max(initial=0) < bound)
