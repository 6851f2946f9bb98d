"""What the executor remembers of its rows from step to step: sampling rule, mask, last sampled token,
block table.

A row is a request's place for as long as the scheduler lets it have it. Nothing here knows requests.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from ...ipc.messages import NewRow
from ...ipc.plan import Column
from .sampler import Rules

_SEED_MASK = (1 << 64) - 1


class _Mask(NamedTuple):
    """Tokens (int64) that a row may not sample below a position."""

    until: int
    tokens: torch.Tensor


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
        self._masks: dict[int, _Mask] = {}

    def admit(self, new: NewRow) -> None:
        """From now on the row samples like this. A seed is taken modulo 2^64, so negative ones are themselves."""
        rules, sampling = self.rules, new.sampling
        rules.temperature[new.row] = sampling.temperature
        rules.top_k[new.row] = max(0, sampling.top_k)
        rules.top_p[new.row] = sampling.top_p
        rules.min_p[new.row] = sampling.min_p
        rules.seed[new.row] = sampling.seed & _SEED_MASK
        self._masks.pop(new.row, None)
        if new.masked_token_ids:
            self._masks[new.row] = _Mask(new.masked_until, torch.tensor(new.masked_token_ids))

    def mask(self, logits: torch.Tensor, rows: npt.NDArray[np.int64], positions: npt.NDArray[np.int64]) -> None:
        """Take from the logits [rows, vocabulary] what may not be sampled at these positions, in place."""
        if not self._masks:
            return
        for index, (row, position) in enumerate(zip(rows.tolist(), positions.tolist(), strict=True)):
            mask = self._masks.get(row)
            if mask is not None and position < mask.until:
                logits[index, mask.tokens] = float("-inf")

    def set_blocks(self, rows: Column, indices: Column, blocks: Column) -> None:
        """Entry indices[i] of the table of rows[i] is blocks[i]; of two changes of one entry the later holds."""
        self.tables[rows, indices] = blocks
