"""Where each row of the executor stands: how much of its KV is final, what it sampled last, which drafts are ready.

The scheduler plans a step before it has seen the results of the one before, so these facts are kept here. Knows
neither torch nor the model: runner.py and fake.py both stand on it.
"""

from __future__ import annotations

import numpy as np

from ...ipc.plan import Column
from .verify import Indices, Verdict


class Cursors:
    """Columns indexed by row.

    `length`: the positions whose KV is written and final. `pending` [rows, 1 + most_drafts]: the tokens for the
    positions from there on, first the one that was sampled last, then the drafts, of which `drafted` are ready.
    """

    def __init__(self, rows: int, most_drafts: int) -> None:
        self.most_drafts = most_drafts
        self.length = np.zeros(rows, np.int64)
        self.pending = np.zeros((rows, 1 + most_drafts), np.int32)
        self.drafted = np.zeros(rows, np.int64)

    def reset(self, row: int) -> None:
        """The row belongs to another request."""
        self.length[row] = self.drafted[row] = 0
        self.pending[row] = 0

    def advance(self, rows: Indices, drafts: Indices, verdict: Verdict) -> None:
        """Rows whose `length` counts the drafts of this step keep what was accepted, and remember the last token."""
        accepted = verdict.produced - 1
        self.length[rows] -= drafts - accepted
        self.pending[rows, 0] = verdict.tokens[np.arange(len(rows)), accepted]
        self.drafted[rows] = 0

    def propose(self, row: int, drafts: Column) -> None:
        """At most `most_drafts` drafts are ready for the row's next step."""
        self.drafted[row] = len(drafts)
        self.pending[row, 1 : 1 + len(drafts)] = drafts
