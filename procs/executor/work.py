"""What the rows of a plan do, with what only the executor knows filled in: the true start of a row that goes on
from its last step, its last token and its drafts.

Everything is in plan order. Knows neither torch nor the model: batch.py and fake.py both begin here.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...ipc.messages import StepPlan
from ...ipc.plan import LAST, SAMPLES, StepSlot
from .cursors import Cursors
from .verify import Flags, Indices


@dataclass(frozen=True, slots=True)
class Work:
    """A step's rows and their tokens.

    Per row: `row`, `start`, `count`, `drafts` (tokens at its end that are verified), `samples`, and `first`, the
    place of its first token. Per token, one row after the other: `tokens`, and `given`, its place in the
    slot's tokens, or -1 for the executor's own.
    """

    row: Indices
    start: Indices
    count: Indices
    drafts: Indices
    samples: Flags
    first: Indices
    tokens: Indices
    given: Indices

    def following(self, slot: StepSlot) -> Indices:
        """The known token after each given token, or -1: the next one of its row, or what the plan says follows."""
        after = np.append(self.tokens[1:], -1)
        after[self.first + self.count - 1] = slot.next[: len(self.row)]
        return np.where(self.given >= 0, after, -1)


@dataclass(frozen=True, slots=True)
class Draws:
    """The draws of a step: one for each row that samples and one for each of its drafts.

    Per row that samples: `rows`, its place among the step's rows, and `turns`, how many draws it has. Per draw, one
    row after the other: `owner`, the same as rows, `turn`, its number in the row, and `place`, the token
    that it follows.
    """

    rows: Indices
    turns: Indices
    owner: Indices
    turn: Indices
    place: Indices


def ragged(counts: Indices) -> tuple[Indices, Indices]:
    """For `counts` things of each owner, one owner after the other: the owner of each, and its number among them."""
    owner = np.repeat(np.arange(len(counts)), counts)
    return owner, np.arange(len(owner)) - (np.cumsum(counts) - counts)[owner]


def work_of(plan: StepPlan, slot: StepSlot, cursors: Cursors) -> Work:
    """What a plan's rows do. A row with LAST starts where it stands and verifies as many drafts as it has and may."""
    columns = (slot.row, slot.start, slot.count, slot.drafts, slot.flags)
    row, start, count, drafts, flags = (column[: plan.rows].astype(np.int64) for column in columns)
    samples, last = (flags & SAMPLES) != 0, (flags & LAST) != 0
    drafts = np.minimum(np.where(last, cursors.drafted[row], drafts), count - 1) * samples
    start = np.where(last, cursors.length[row], start)
    count = np.where(last, 1 + drafts, count)

    owner, within = ragged(count)
    of_last = last[owner]
    given = np.where(of_last, -1, np.cumsum(~of_last) - 1)
    tokens = slot.tokens[given].astype(np.int64)
    tokens[of_last] = cursors.pending[row[owner[of_last]], within[of_last]]
    return Work(row, start, count, drafts, samples, np.cumsum(count) - count, tokens, given)


def draws_of(first: Indices, count: Indices, drafts: Indices, samples: Flags) -> Draws:
    """The draws of rows in this order; a row draws after each of its last 1 + drafts tokens."""
    rows = np.flatnonzero(samples)
    turns = 1 + drafts[rows]
    number, turn = ragged(turns)
    owner = rows[number]
    return Draws(rows, turns, owner, turn, (first + count - 1 - drafts)[owner] + turn)
