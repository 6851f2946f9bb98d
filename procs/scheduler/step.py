"""Building one step: the rows of a plan, written straight into the arrays of a step slot.

The builder knows how a step is laid out (ipc/plan.py) and how much it holds; which rows go into it is the
planner's business.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...ipc.messages import NewRow, StepPlan
from ...ipc.plan import LAST, SAMPLES, Column, StepShape, StepSlot
from ...ipc.ring import Tokens
from .rows import Rows


@dataclass(frozen=True, slots=True)
class OpenStep:
    """A step that was sent and is not settled: its rows, and whose they were when it was planned."""

    plan: StepPlan
    rows: Rows
    counts: Column
    samples: npt.NDArray[np.bool_]
    generations: npt.NDArray[np.int64]


class StepBuilder:
    """Fills a slot with at most shape.max_tokens tokens of at most shape.max_rows rows."""

    def __init__(self, slot: StepSlot, shape: StepShape) -> None:
        self._slot = slot
        self._rows = 0
        self._tokens = 0
        self._blocks = 0
        self._new_rows: list[NewRow] = []
        self._in_step: set[int] = set()
        self.left = shape.max_tokens
        self.has_prefill = False

    @property
    def empty(self) -> bool:
        return self._rows == 0

    def __contains__(self, row: int) -> bool:
        return row in self._in_step

    def new_row(self, new: NewRow) -> None:
        """From this step on the executor's row belongs to another request."""
        self._new_rows.append(new)

    def change_blocks(self, rows: Rows, indexes: npt.NDArray[np.int64], ids: Column) -> None:
        """Entry indexes[i] of the block table of rows[i] becomes ids[i]."""
        end = self._blocks + len(ids)
        self._slot.block_row[self._blocks : end] = rows
        self._slot.block_index[self._blocks : end] = indexes
        self._slot.block_id[self._blocks : end] = ids
        self._blocks = end

    def decode(self, rows: Rows, starts: npt.NDArray[np.int64]) -> None:
        """One token a row: the one that the row sampled last, at position starts[i]."""
        self._add(rows, starts, 1, SAMPLES | LAST)
        self.left -= len(rows)
        self._in_step.update(rows.tolist())

    def chunk(self, row: int, start: int, tokens: Tokens, samples: bool) -> None:
        """Known tokens of one row from position `start` on."""
        self._add(np.array([row]), np.array([start]), len(tokens), SAMPLES if samples else 0)
        self._slot.tokens[self._tokens : self._tokens + len(tokens)] = tokens
        self._tokens += len(tokens)
        self.left -= len(tokens)
        self.has_prefill = True
        self._in_step.add(row)

    def _add(self, rows: Rows, starts: npt.NDArray[np.int64], count: int, flags: int) -> None:
        end = self._rows + len(rows)
        self._slot.row[self._rows : end] = rows
        self._slot.start[self._rows : end] = starts
        self._slot.count[self._rows : end] = count
        self._slot.flags[self._rows : end] = flags
        self._rows = end

    def finish(self, number: int, slot_index: int, generation: npt.NDArray[np.int64]) -> OpenStep:
        """The step as a value. `generation` is the row table's column at this moment."""
        rows = self._slot.row[: self._rows].astype(np.intp)
        plan = StepPlan(number, slot_index, self._rows, self._tokens, self._blocks, tuple(self._new_rows))
        samples = (self._slot.flags[: self._rows] & SAMPLES) != 0
        return OpenStep(plan, rows, self._slot.count[: self._rows].copy(), samples, generation[rows])
