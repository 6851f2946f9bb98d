"""From logits to tokens, one row each. A row's token depends on its own logits, rule and noise only.

If all rows are greedy this costs one pass over the logits. The rest is done row by row by draw.py.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from ...common.types import GREEDY_BELOW
from .draw import CANDIDATES, Filters, draw, noise_count
from .noise import gumbels
from .verify import Sampled

_NO_CANDIDATES = np.zeros(0, np.int64)


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

    @property
    def ranking(self) -> npt.NDArray[np.bool_]:
        """The rows for which tokens must be ranked to say which may be drawn."""
        return (self.top_k > 0) | (self.top_p < 1)

    def filters(self, row: int) -> Filters:
        return Filters(int(self.top_k[row]), float(self.top_p[row]), float(self.min_p[row]))


def sample(logits: torch.Tensor, rules: Rules, positions: npt.NDArray[np.int64]) -> Sampled:
    """Choose a token for each row of logits [rows, vocabulary]; `positions` are those of the new tokens."""
    highest, best = logits.max(dim=-1)  # NaN counts as the highest
    tokens = best.numpy()
    failed = ~torch.isfinite(highest).numpy()
    random = np.flatnonzero((rules.temperature >= GREEDY_BELOW) & ~failed)
    if len(random):
        chosen, rows = rules.of(random), torch.from_numpy(random)
        scores = (logits[rows].float() - highest[rows].float()[:, None]) / torch.from_numpy(chosen.temperature)[:, None]
        noise = gumbels(chosen.seed, positions[random].astype(np.uint64), noise_count(logits.shape[1]))
        tokens[random] = _draw_rows(scores, chosen, noise)
    return Sampled(tokens, failed)


def _draw_rows(scores: torch.Tensor, rules: Rules, noise: npt.NDArray[np.float64]) -> list[int]:
    ranking = np.flatnonzero(rules.ranking)
    best = scores[torch.from_numpy(ranking)].topk(min(CANDIDATES, scores.shape[1]), dim=-1)[1]
    candidates = dict(zip(ranking.tolist(), best.numpy(), strict=True))
    return [
        draw(row, rules.filters(index), variates, candidates.get(index, _NO_CANDIDATES))
        for index, (row, variates) in enumerate(zip(scores.numpy(), noise, strict=True))
    ]
