"""What the executor remembers of its rows from step to step: sampling rule, biases and masks, wanted
log-probabilities, block table, and where they stand (cursors.py).

A row is a request's place for as long as the scheduler lets it have it. Nothing here knows requests.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from ...ipc.messages import NO_LOGPROBS, NewRow
from ...ipc.plan import Column
from .cursors import Cursors
from .sampler import Rules

_SEED_MASK = (1 << 64) - 1


class _Adjustment(NamedTuple):
    """What a row adds to the logits of some tokens (int64), and which it may not sample below a position."""

    biased: torch.Tensor
    biases: torch.Tensor
    masked_until: int
    masked: torch.Tensor

    def apply(self, logits: torch.Tensor, position: int) -> None:
        logits[self.biased] += self.biases
        if position < self.masked_until:
            logits[self.masked] = float("-inf")


class Rows:
    """Columns indexed by row; `tables` is int32 [rows, blocks].

    `logprobs` and `prompt_logprobs` are of how many best tokens, or NO_LOGPROBS.
    """

    def __init__(self, rows: int, blocks: int, most_drafts: int = 0) -> None:
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
        self._adjustments: dict[int, _Adjustment] = {}

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
        self._adjustments.pop(new.row, None)
        if sampling.biased or new.masked_token_ids:
            self._adjustments[new.row] = _Adjustment(
                torch.tensor(sampling.biased, dtype=torch.int64),
                torch.tensor(sampling.biases, dtype=torch.float32),
                new.masked_until,
                torch.tensor(new.masked_token_ids, dtype=torch.int64),
            )

    def adjust(
        self, logits: torch.Tensor, rows: npt.NDArray[np.int64], positions: npt.NDArray[np.int64]
    ) -> torch.Tensor:
        """The logits [rows, vocabulary] of tokens at these positions, with biases and masks applied.

        They are the same tensor unless a row has an adjustment; then they are float32, in which a bias of
        100 leaves the logits their digits.
        """
        if self._adjustments.keys().isdisjoint(rows.tolist()):
            return logits
        logits = logits.float()
        for index, (row, position) in enumerate(zip(rows.tolist(), positions.tolist(), strict=True)):
            adjustment = self._adjustments.get(row)
            if adjustment is not None:
                adjustment.apply(logits[index], position)
        return logits

    def set_blocks(self, rows: Column, indices: Column, blocks: Column) -> None:
        """Entry indices[i] of the table of rows[i] is blocks[i]; of two changes of one entry the later holds."""
        self.tables[rows, indices] = blocks
