"""Building one step: the rows of a plan, written straight into the arrays of a step slot.

The builder knows how a step is laid out (ipc/plan.py) and how much it holds; which rows go into it is the
planner's business.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ....ipc.messages import MediaChunk, NewRow, StepPlan
from ....ipc.plan import LAST, MAX_TOLD_BLOCKS, SAMPLES, Column, StepShape, StepSlot
from ....ipc.ring import Tokens
from ..rows import Counts, Flags, Rows, RowTable

NO_TOKEN = -1


@dataclass(frozen=True, slots=True)
class OpenStep:
    """A step that was sent and is not settled: its rows, and whose they were when it was planned.

    `host_drafts`: the drafts of a row lie in the plan and not in the executor. `token_starts` is the place of each
    row's first token in the slot's `tokens`.
    """

    plan: StepPlan
    rows: Rows
    starts: Column
    counts: Column
    drafts: Column
    samples: Flags
    decodes: Flags
    host_drafts: Flags
    token_starts: Counts
    generations: Counts
    planned_s: float
    has_prefill: bool


class StepBuilder:
    """Fills a slot with at most shape.max_tokens tokens of at most shape.max_rows rows."""

    def __init__(self, slot: StepSlot, shape: StepShape) -> None:
        self._slot = slot
        self._rows = 0
        self._tokens = 0
        self._blocks = 0
        self._new_rows: list[NewRow] = []
        self._media: list[MediaChunk] = []
        self._state_copies: list[tuple[int, int]] = []
        self._in_step: set[int] = set()
        self._decodes: list[tuple[int, int]] = []
        self.budget = shape.max_tokens
        self.left = shape.max_tokens
        self.told_left = MAX_TOLD_BLOCKS  # blocks that rows had before this step and that it can still tell
        self.prefill_tokens = 0

    @property
    def empty(self) -> bool:
        return self._rows == 0

    @property
    def has_prefill(self) -> bool:
        return self.prefill_tokens > 0

    def __contains__(self, row: object) -> bool:
        return row in self._in_step

    @property
    def rows(self) -> Rows:
        """The rows in the step, in order."""
        rows: Rows = self._slot.row[: self._rows].astype(np.intp)
        return rows

    @property
    def starts(self) -> Column:
        """The position at which each of them begins."""
        return self._slot.start[: self._rows]

    def new_row(self, new: NewRow) -> None:
        """From this step on the executor's row belongs to another request."""
        self._new_rows.append(new)

    def copy_state(self, source: int, target: int) -> None:
        """Copy a state slot before the step, after the copies that were asked for earlier."""
        self._state_copies.append((source, target))

    def change_blocks(self, rows: Rows, indexes: Counts, ids: Column) -> None:
        """Entry indexes[i] of the block table of rows[i] becomes ids[i]."""
        end = self._blocks + len(ids)
        self._slot.block_row[self._blocks : end] = rows
        self._slot.block_index[self._blocks : end] = indexes
        self._slot.block_id[self._blocks : end] = ids
        self._blocks = end

    def decode(self, rows: Rows, starts: Counts, grants: Counts, deltas: Counts) -> None:
        """The token that each row sampled last, at position starts[i], and grants[i] drafts for it."""
        if not len(rows):
            return
        self._decodes.append((self._rows, self._rows + len(rows)))
        self._add(rows, starts, 1 + grants, grants, SAMPLES | LAST, NO_TOKEN, deltas)
        self.left -= len(rows) + int(grants.sum())

    def host_decode(self, rows: Rows, starts: Counts, tokens: Tokens, drafts: Counts, deltas: Counts) -> None:
        """Last tokens and drafts that the executor does not have: `tokens` has 1 + drafts[i] of each, in this order."""
        self._decodes.append((self._rows, self._rows + len(rows)))
        self._add(rows, starts, 1 + drafts, drafts, SAMPLES, NO_TOKEN, deltas)
        self._put_tokens(tokens)

    def chunk(
        self, row: int, start: int, tokens: Tokens, *, samples: bool, following: int, media: MediaChunk | None = None
    ) -> None:
        """Known tokens of one row from position `start` on; `following` is the known token after them, or NO_TOKEN."""
        if media is not None:
            self._media.append(media)
        self._add(np.array([row]), np.array([start]), len(tokens), 0, SAMPLES if samples else 0, following, 0)
        self._put_tokens(tokens)
        self.prefill_tokens += len(tokens)

    @property
    def next_index(self) -> int:
        """The place that the next row will have in the plan."""
        return self._rows

    def _put_tokens(self, tokens: Tokens) -> None:
        self._slot.tokens[self._tokens : self._tokens + len(tokens)] = tokens
        self._tokens += len(tokens)
        self.left -= len(tokens)

    def _add(
        self,
        rows: Rows,
        starts: Counts,
        counts: Counts | int,
        drafts: Counts | int,
        flags: int,
        following: int,
        deltas: Counts | int,
    ) -> None:
        end = self._rows + len(rows)
        at = slice(self._rows, end)
        slot = self._slot
        slot.row[at], slot.start[at], slot.count[at], slot.drafts[at] = rows, starts, counts, drafts
        slot.flags[at], slot.next[at], slot.delta[at] = flags, following, deltas
        self._rows = end
        self._in_step.update(rows.tolist())

    def finish(self, number: int, slot_index: int, table: RowTable, now: float) -> OpenStep:
        """The step as a value."""
        slot, rows = self._slot, self._slot.row[: self._rows].astype(np.intp)
        plan = StepPlan(
            number,
            slot_index,
            self._rows,
            self._tokens,
            self._blocks,
            tuple(self._new_rows),
            tuple(self._media),
            np.array(self._state_copies, np.int32).tobytes() if self._state_copies else b"",
        )
        counts, drafts = slot.count[: self._rows].copy(), slot.drafts[: self._rows].copy()
        flags = slot.flags[: self._rows]
        decodes = np.zeros(self._rows, np.bool_)
        for first, end in self._decodes:
            decodes[first:end] = True
        given = np.where(flags & LAST, 0, counts)
        return OpenStep(
            plan=plan,
            rows=rows,
            starts=slot.start[: self._rows].copy(),
            counts=counts,
            drafts=drafts,
            samples=(flags & SAMPLES) != 0,
            decodes=decodes,
            host_drafts=decodes & ((flags & LAST) == 0),
            token_starts=np.cumsum(given) - given,
            generations=table.generation[rows],
            planned_s=now,
            has_prefill=self.has_prefill,
        )
