"""From a step plan and the rows to the flat batch that the model computes.

Inside the batch the rows are sorted: decodes first, the shorter before the longer, then chunks in plan
order. So attention takes contiguous slices. `order` leads back to plan order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...ipc.messages import StepPlan
from ...ipc.plan import LAST, SAMPLES, StepSlot
from .attention.backend import Spans
from .rows import Rows

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Batch:
    """One step's flat batch; see the module's docstring.

    Per token: `tokens`, `positions` and `slots`, the place in the KV cache. Per row: `order`, the row's
    place in the plan, and `rows`, the executor's row. `sampling` are the places in the batch of the rows
    that sample. `begun` are blocks that a row has begun but not filled in this step.
    """

    tokens: Indices
    positions: Indices
    slots: Indices
    order: Indices
    rows: Indices
    sampling: Indices
    begun: Indices
    spans: Spans

    @property
    def last(self) -> Indices:
        """The last tokens of the rows that sample, as places in the flat batch."""
        return (self.spans.first + self.spans.count - 1)[self.sampling]


def build_batch(plan: StepPlan, slot: StepSlot, rows: Rows, block_size: int) -> Batch:
    """The batch of a plan whose row and block changes have been applied to `rows` already."""
    start, count, flags = (column[: plan.rows].astype(np.int64) for column in (slot.start, slot.count, slot.flags))
    order = np.lexsort((np.where(count == 1, start, 0), count > 1))
    tokens_of = _token_offsets(count, flags)[order]
    row, start, count, flags = slot.row[order].astype(np.int64), start[order], count[order], flags[order]

    first = np.cumsum(count) - count
    row_of_token = np.repeat(np.arange(len(count)), count)
    within = np.arange(len(row_of_token)) - first[row_of_token]
    from_last = (flags & LAST)[row_of_token] != 0
    tokens = slot.tokens[np.where(from_last, 0, tokens_of[row_of_token] + within)].astype(np.int64)
    tokens[from_last] = rows.last[row[row_of_token[from_last]]]
    positions = start[row_of_token] + within
    blocks = rows.tables[row[row_of_token], positions // block_size].astype(np.int64)

    return Batch(
        tokens=tokens,
        positions=positions,
        slots=blocks * block_size + positions % block_size,
        order=order,
        rows=row,
        sampling=np.flatnonzero(flags & SAMPLES),
        begun=_begun_blocks(start, start + count, rows.tables[row], block_size),
        spans=Spans(first, count, start + count, rows.tables[row], block_size),
    )


def _token_offsets(count: Indices, flags: Indices) -> Indices:
    """Where each row's tokens begin in the slot, in plan order; rows with LAST have none there."""
    given = np.where(flags & LAST, 0, count)
    return np.cumsum(given) - given


def _begun_blocks(start: Indices, end: Indices, tables: npt.NDArray[np.int32], block_size: int) -> Indices:
    last = (end - 1) // block_size
    begun = np.flatnonzero((last * block_size >= start) & (end % block_size != 0))
    return tables[begun, last[begun]].astype(np.int64)
