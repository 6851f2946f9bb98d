"""From a step's work to the flat batch that the model computes.

Inside the batch the rows are sorted: decodes first, the shorter before the longer, then chunks in plan
order. So attention takes contiguous slices. `order` leads back to plan order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...ipc.plan import StepSlot
from .attention.backend import Spans
from .verify import Indices
from .work import Draws, Work, draws_of, ragged


@dataclass(frozen=True, slots=True)
class Batch:
    """One step's flat batch; see the module's docstring.

    Per token: `tokens`, `positions`, `slots`, the place in the KV cache, `given`, the place in the slot's
    tokens or -1, and `following`, the known token after it or -1. Per row: `order`, the row's place in the plan,
    `rows`, the executor's row, and `drafts`, how many of its tokens are verified. `begun` are blocks that a row has
    begun but not filled in this step.
    """

    tokens: Indices
    positions: Indices
    slots: Indices
    given: Indices
    following: Indices
    order: Indices
    rows: Indices
    drafts: Indices
    draws: Draws
    begun: Indices
    spans: Spans

    @property
    def owners(self) -> Indices:
        """The row of each token, as its place in the batch."""
        return np.repeat(np.arange(len(self.rows)), self.spans.count)


def build_batch(work: Work, slot: StepSlot, tables: npt.NDArray[np.int32], block_size: int) -> Batch:
    """The batch of a step. `tables` are the block tables of all rows, with the step's changes."""
    order = np.lexsort((np.where(work.count == 1, work.start, 0), work.count > 1))
    row, start, count, drafts = (column[order] for column in (work.row, work.start, work.count, work.drafts))
    owner, within = ragged(count)
    source = work.first[order][owner] + within
    positions = start[owner] + within
    blocks = tables[row[owner], positions // block_size].astype(np.int64)
    first, of_rows = np.cumsum(count) - count, tables[row]

    return Batch(
        tokens=work.tokens[source],
        positions=positions,
        slots=blocks * block_size + positions % block_size,
        given=work.given[source],
        following=work.following(slot)[source],
        order=order,
        rows=row,
        drafts=drafts,
        draws=draws_of(first, count, drafts, work.samples[order]),
        begun=_begun_blocks(start, start + count, of_rows, block_size),
        spans=Spans(first, count, start + count, of_rows, block_size),
    )


def _begun_blocks(start: Indices, end: Indices, tables: npt.NDArray[np.int32], block_size: int) -> Indices:
    last = (end - 1) // block_size
    begun = np.flatnonzero((last * block_size >= start) & (end % block_size != 0))
    return tables[begun, last[begun]].astype(np.int64)
