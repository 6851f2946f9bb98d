"""What the executor remembers of its rows from step to step: sampling rule, last sampled token, block table.

A row is a request's place for as long as the scheduler lets it have it. Nothing here knows requests.
"""

from __future__ import annotations

import numpy as np

from ...ipc.messages import NewRow
from ...ipc.plan import Column
from .sampler import Rules

_SEED_MASK = (1 << 64) - 1


class Rows:
    """Columns indexed by row; `tables` is int32 [rows, blocks]."""

    def __init__(self, rows: int, blocks: int) -> None:
        self.last = np.zeros(rows, np.int32)
        self.tables = np.zeros((rows, blocks), np.int32)
        self.rules = Rules(
            np.zeros(rows, np.float32),
            np.zeros(rows, np.int64),
            np.ones(rows, np.float64),
            np.zeros(rows, np.float64),
            np.zeros(rows, np.uint64),
        )

    def admit(self, new: NewRow) -> None:
        """From now on the row samples like this. A seed is taken modulo 2^64, so negative ones are themselves."""
        rules, sampling = self.rules, new.sampling
        rules.temperature[new.row] = sampling.temperature
        rules.top_k[new.row] = max(0, sampling.top_k)
        rules.top_p[new.row] = sampling.top_p
        rules.min_p[new.row] = sampling.min_p
        rules.seed[new.row] = sampling.seed & _SEED_MASK

    def set_blocks(self, rows: Column, indices: Column, blocks: Column) -> None:
        """Entry indices[i] of the table of rows[i] is blocks[i]; of two changes of one entry the later holds."""
        self.tables[rows, indices] = blocks
