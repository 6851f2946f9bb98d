"""The decode rows of a step: which, with how many drafts, and blocks for them.

Every planned decode gives one token at least. What the open steps will turn out to give is known as a bound only:
`max_tokens` counts the least, the model length and blocks count the most.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..rows import Counts, Rows, RowTable
from .preemption import Preemption
from .step import StepBuilder

MAX_SKIPPED = 8
"""A decode that was left out of so many steps running goes first in the next."""


class Decodes:
    """Plans the decodes of one row table."""

    def __init__(self, table: RowTable, preemption: Preemption, drafts: int) -> None:
        self._table = table
        self._preemption = preemption
        self._drafts = drafts
        self._last_served = -1  # arrival of the last row that the budget had room for, when it had not for all
        self._exhausted: int | None = None

    def take_exhausted(self) -> int | None:
        """The row that runs alone and cannot grow any more, if there is one; the core ends it."""
        row, self._exhausted = self._exhausted, None
        return row

    def plan(self, builder: StepBuilder, *, overdue_only: bool = False) -> None:
        """Put into the step what its budget holds. Rows that need a block may take it from others by preemption."""
        table = self._table
        rows = self.decodable()
        if not builder.empty:
            rows = rows[[row not in builder for row in rows.tolist()]]
        rows = self._tellable(builder, rows)
        rows = self._longest_overdue(rows) if overdue_only else self._in_turn(rows)
        served, grants = self._within_budget(rows, builder.left)
        if not overdue_only:
            self._remember(rows, len(served))
            table.skipped[rows] += 1
        table.skipped[served] = 0
        if not table.grow(served, table.scheduled[served] + 1 + grants):
            served, grants = self._make_room(builder, served, grants)
        self._add(builder, served, grants)

    def decodable(self) -> Rows:
        """Rows past their prefill that have room for one more token, in the order of arrival."""
        table = self._table
        rows = table.offered()
        scheduled = table.scheduled[rows]
        least = table.length[rows] + table.open_tokens[rows]
        room = (least < table.token_limit[rows]) & (scheduled + 1 < table.max_model_len)
        decodable: Rows = rows[(scheduled >= table.target[rows]) & room]
        return decodable

    def grants(self, rows: Rows) -> Counts:
        """How many drafts each row may have: those that lie ready, the most possible ones behind an open step."""
        table = self._table
        ready = np.where(table.open_steps[rows] == 0, table.drafted[rows], self._drafts)
        useful = table.token_limit[rows] - table.length[rows] - table.open_tokens[rows] - 1
        room = table.max_model_len - table.scheduled[rows] - 2
        grants: Counts = np.maximum(np.minimum(np.minimum(ready, useful), room), 0)
        return grants

    def _tellable(self, builder: StepBuilder, rows: Rows) -> Rows:
        """The rows whose blocks the executor knows or can be told in this step: many may have come at once."""
        untold = self._table.blocks[rows] - self._table.sent_blocks[rows]
        if not untold.any():
            return rows
        told = (untold == 0) | (np.cumsum(untold) <= builder.told_left)
        builder.told_left -= int(untold[told].sum())
        tellable: Rows = rows[told]
        return tellable

    def _longest_overdue(self, rows: Rows) -> Rows:
        """Those that were left out too often, most often first."""
        skipped = self._table.skipped[rows]
        order = np.argsort(-skipped, kind="stable")
        overdue: Rows = rows[order[skipped[order] >= MAX_SKIPPED]]
        return overdue

    def _in_turn(self, rows: Rows) -> Rows:
        """The rows in order of arrival, from behind the last one served if the last step had not room for all."""
        behind = int(np.searchsorted(self._table.arrival[rows], self._last_served, side="right"))
        return np.roll(rows, -behind) if self._last_served >= 0 else rows

    def _remember(self, rows: Rows, served: int) -> None:
        """So many of the rows, the first ones, are served: the next step goes on behind them."""
        if served == len(rows):
            self._last_served = -1
        elif served:
            self._last_served = int(self._table.arrival[rows[served - 1]])

    def _within_budget(self, rows: Rows, left: int) -> tuple[Rows, Counts]:
        """The first rows that `left` tokens hold, with their grants, of which the last is cut to fit."""
        grants = self.grants(rows) if self._drafts else np.zeros(len(rows), np.int64)
        before = np.cumsum(1 + grants) - (1 + grants)
        count = int(np.count_nonzero(before < left))
        rows, grants = rows[:count], grants[:count]
        if count:
            grants[-1] = min(grants[-1], left - before[count - 1] - 1)
        return rows, grants

    def _make_room(self, builder: StepBuilder, rows: Rows, grants: Counts) -> tuple[Rows, Counts]:
        """The rows that can decode now, one after the other; those that need a block may take another's."""
        served: dict[int, int] = {}
        victims = self._preemption.victims(_Kept(builder, served))
        for row, grant in zip(rows.tolist(), grants.tolist(), strict=True):
            if self._table.running[row] and (granted := self._grow(row, grant, victims)) is not None:
                served[row] = granted
        return np.array(list(served), np.intp), np.array(list(served.values()), np.int64)

    def _grow(self, row: int, grant: int, victims: Iterator[int]) -> int | None:
        """Find blocks for a row's next token; drafts do not preempt. How many drafts, or None if it cannot decode."""
        table, at = self._table, np.array([row])
        start = int(table.scheduled[row])
        if table.grow(at, np.array([start + 1 + grant])):
            return grant
        if (room := int(table.blocks[row]) * table.block_size - start - 1) >= 0:
            return room
        while not table.grow(at, np.array([start + 1])):
            if table.running_count == 1:
                self._look_if_exhausted(row)
                return None
            victim = next(victims, None)
            if victim is None:
                return None
            self._preemption.preempt(victim)
            if victim == row:
                return None
        return 0

    def _look_if_exhausted(self, row: int) -> None:
        """A row that runs alone cannot grow: it waits for what others hold still, or for its own open steps."""
        table, pool = self._table, self._table.pool
        alone = pool.size - pool.free <= table.blocks[row]
        if alone and not table.in_flight[row] and not table.pinned[row]:
            self._exhausted = row

    def _add(self, builder: StepBuilder, rows: Rows, grants: Counts) -> None:
        table = self._table
        starts = table.scheduled[rows]
        host = table.from_host[rows]
        if host.any():
            self._add_from_host(builder, rows[host], starts[host], grants[host])
        device = rows[~host]
        builder.decode(device, starts[~host], grants[~host], table.mrope_delta[device])

    def _add_from_host(self, builder: StepBuilder, rows: Rows, starts: Counts, grants: Counts) -> None:
        """Rows whose last token and drafts came from another engine."""
        table, counts = self._table, 1 + grants
        firsts = np.cumsum(counts) - counts
        tokens = np.zeros(int(counts.sum()), np.int32)
        tokens[firsts] = table.tokens[rows, starts]
        for index in np.flatnonzero(grants).tolist():
            remote = table.request(int(rows[index])).remote
            assert remote is not None
            tokens[firsts[index] + 1 : firsts[index] + counts[index]] = remote.drafts[: grants[index]]
        builder.host_decode(rows, starts, tokens, grants, table.mrope_delta[rows])
        table.from_host[rows] = False


class _Kept:
    """Rows that are in the step or will be."""

    def __init__(self, builder: StepBuilder, served: dict[int, int]) -> None:
        self._builder = builder
        self._served = served

    def __contains__(self, row: object) -> bool:
        return row in self._served or (isinstance(row, int) and row in self._builder)
