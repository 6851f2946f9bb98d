"""What the executor remembers of its rows from step to step: sampling rule, what steers it (steering.py), wanted
log-probabilities, block table, and where they stand (cursors.py).

A row is a request's place for as long as the scheduler lets it have it. Nothing here knows requests.
"""

from __future__ import annotations

import numpy as np

from ...ipc.messages import NO_LOGPROBS, NewRow
from ...ipc.plan import Column
from .cursors import Cursors
from .sampler import Rules
from .steering import NOT_FINITE, Steering
from .structure import Grammars

_SEED_MASK = (1 << 64) - 1


class Rows:
    """Columns indexed by row; `tables` is int32 [rows, blocks].

    `logprobs` and `prompt_logprobs` are of how many best tokens, or NO_LOGPROBS. `steering` is of the rows that have
    something to steer by.
    """

    def __init__(self, rows: int, blocks: int, grammars: Grammars, most_drafts: int = 0) -> None:
        self._grammars = grammars
        self.cursors = Cursors(rows, most_drafts)
        self.tables = np.zeros((rows, blocks), np.int32)
        self.rules = Rules(
            np.zeros(rows, np.float32),
            np.zeros(rows, np.int64),
            np.ones(rows, np.float64),
            np.zeros(rows, np.float64),
            np.zeros(rows, np.uint64),
        )
        self.logprobs = np.full(rows, NO_LOGPROBS, np.int64)
        self.prompt_logprobs = np.full(rows, NO_LOGPROBS, np.int64)
        self.steering: dict[int, Steering] = {}

    def admit(self, new: NewRow) -> None:
        """From now on the row samples like this. A seed is taken modulo 2^64, so negative ones are themselves."""
        rules, sampling = self.rules, new.sampling
        rules.temperature[new.row] = sampling.temperature
        rules.top_k[new.row] = max(0, sampling.top_k)
        rules.top_p[new.row] = sampling.top_p
        rules.min_p[new.row] = sampling.min_p
        rules.seed[new.row] = new.seed & _SEED_MASK
        self.logprobs[new.row] = sampling.logprobs
        self.prompt_logprobs[new.row] = sampling.prompt_logprobs
        self.cursors.reset(new.row)
        self.steering.pop(new.row, None)
        if sampling.biased or new.masked_token_ids or sampling.needs_history:
            self.steering[new.row] = Steering(new, self._grammars)

    def why_failed(self, row: int) -> str:
        """Why no token could be chosen for a row."""
        steering = self.steering.get(row)
        return NOT_FINITE if steering is None else steering.failure

    def set_blocks(self, rows: Column, indices: Column, blocks: Column) -> None:
        """Entry indices[i] of the table of rows[i] is blocks[i]; of two changes of one entry the later holds."""
        self.tables[rows, indices] = blocks
