"""The steps that were sent and are not settled, in order, and the step slots that they and nobody use."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

import numpy as np

from ....ipc.plan import StepSlot
from ..rows import Rows, RowTable
from .step import OpenStep

_NO_ROWS: Rows = np.zeros(0, np.int64)


class OpenSteps:
    """Up to `depth` open steps of one row table, whose columns say what is under way."""

    def __init__(self, table: RowTable, slots: Sequence[StepSlot], depth: int) -> None:
        self._table = table
        self._slots = slots
        self._depth = depth
        self._free_slots = list(range(len(slots)))
        self._steps: deque[OpenStep] = deque()

    def __len__(self) -> int:
        return len(self._steps)

    @property
    def full(self) -> bool:
        return len(self._steps) >= self._depth

    @property
    def oldest(self) -> OpenStep | None:
        """The step whose results come next."""
        return self._steps[0] if self._steps else None

    @property
    def first_unsettled(self) -> float:
        """The number of the oldest open step; infinity if there is none."""
        return self._steps[0].plan.step if self._steps else math.inf

    @property
    def next_slot(self) -> tuple[int, StepSlot]:
        """The slot that the next step is written into, and its number."""
        return self._free_slots[-1], self._slots[self._free_slots[-1]]

    def push(self, step: OpenStep) -> None:
        """A step goes out."""
        slot = self._free_slots.pop()
        assert slot == step.plan.slot
        self._table.in_flight[step.rows] += step.counts
        self._table.open_tokens[step.rows] += step.samples
        self._table.open_steps[step.rows] += 1
        self._steps.append(step)

    def pop(self) -> tuple[OpenStep, StepSlot]:
        """The oldest step has come back; its results are read before the next `push`."""
        step = self._steps.popleft()
        self._free_slots.append(step.plan.slot)
        return step, self._slots[step.plan.slot]

    def rows(self) -> Rows:
        """The rows that open steps compute for requests that still have them, each once."""
        living = [step.rows[self._table.generation[step.rows] == step.generations] for step in self._steps]
        return np.unique(np.concatenate(living)) if living else _NO_ROWS

    def forget(self) -> None:
        """No results will come."""
        self._free_slots += [step.plan.slot for step in self._steps]
        self._steps.clear()

    @property
    def last_stray(self) -> int:
        """The number of the last open step with a row that has lost its blocks, which it still writes; -1 for none."""
        generation = self._table.generation
        strays = [step.plan.step for step in self._steps if (generation[step.rows] != step.generations).any()]
        return max(strays, default=-1)

    def check(self) -> None:
        """Compare the books; raises AssertionError."""
        assert len(self._steps) + len(self._free_slots) == len(self._slots), "step slots were lost"
        table = self._table
        tokens, samples, steps = (np.zeros_like(table.in_flight) for _ in range(3))
        for step in self._steps:
            alive = table.generation[step.rows] == step.generations
            rows = step.rows[alive]
            tokens[rows] += step.counts[alive]
            samples[rows] += step.samples[alive]
            steps[rows] += 1
        assert (tokens == table.in_flight).all(), "in_flight differs from the open steps"
        assert (samples == table.open_tokens).all() and (steps == table.open_steps).all()
