"""From logits to tokens, one row each. A row's token depends on its own logits, rule and noise only.

A greedy row costs one pass over its logits. The rest is done row by row by draw.py.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...common.types import GREEDY_BELOW
from .draw import Filters, draw, noise_count
from .logits import Logits
from .noise import gumbels
from .verify import Sampled


@dataclass(frozen=True, slots=True)
class Rules:
    """How rows choose their tokens, a column for the seed and each parameter of messages.Sampling."""

    temperature: npt.NDArray[np.float32]
    top_k: npt.NDArray[np.int64]
    top_p: npt.NDArray[np.float64]
    min_p: npt.NDArray[np.float64]
    seed: npt.NDArray[np.uint64]

    def of(self, rows: npt.NDArray[np.int64]) -> Rules:
        """The rules of some rows, in that order."""
        return Rules(self.temperature[rows], self.top_k[rows], self.top_p[rows], self.min_p[rows], self.seed[rows])

    def filters(self, row: int) -> Filters:
        return Filters(int(self.top_k[row]), float(self.top_p[row]), float(self.min_p[row]))


def sample(logits: Logits, rules: Rules, positions: npt.NDArray[np.int64]) -> Sampled:
    """Choose a token for each row of logits; `positions` are those of the new tokens."""
    tokens, highest = np.zeros(len(positions), np.int64), np.zeros(len(positions), np.float32)
    for row in range(len(positions)):
        tokens[row], highest[row] = logits.best(row)
    failed = ~np.isfinite(highest)
    random = np.flatnonzero((rules.temperature >= GREEDY_BELOW) & ~failed)
    if len(random):
        count = noise_count(logits.vocab_size)
        noise = gumbels(rules.seed[random], positions[random].astype(np.uint64), count)
        scores, scratch = np.empty((2, logits.vocab_size), np.float32)
        for row, variates in zip(random.tolist(), noise, strict=True):
            np.subtract(logits.row(row), highest[row], out=scores)
            np.divide(scores, rules.temperature[row], out=scores)
            tokens[row] = draw(scores, rules.filters(row), variates, scratch)
    return Sampled(tokens, failed)
