"""Drawing one row's token: filter the vocabulary, then invert the cumulative distribution of what is left.

The filters, in the order of vLLM: min_p (relative to the most likely token), top_k, top_p over what those
left, renormalised. Equal logits rank by token id. The survivors are laid out by token id, and the token
is the one in whose share of the whole the noise falls. At least one token always survives.

Ranking 49,152 logits takes 3 ms, finding the few hundred highest 0.2 ms: so a row is first cut among
those. Only if the cut cannot be shown to lie among them is the whole vocabulary ranked; both ways do the
same arithmetic on the same numbers in the same order, and so give the same token.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

CANDIDATES = 256
"""How many of the highest logits are tried before the whole vocabulary is ranked."""

_SUM_WIDTH = 256

Ids = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Filters:
    """Which tokens may be drawn; 0, 1 and 0 are off."""

    top_k: int
    top_p: float
    min_p: float

    @property
    def rank(self) -> bool:
        """Whether tokens must be ranked to say which survive."""
        return self.top_k > 0 or self.top_p < 1


def draw(scores: Floats, filters: Filters, noise: float, candidates: Ids) -> int:
    """The token of one row.

    `scores` are logits less the highest one, over the temperature. `candidates` are the ids of the
    highest scores in any order, ties at the end resolved anyhow; `noise` is in [0, 1).
    """
    weights = np.exp(scores)
    if filters.rank:
        ids = survivors(scores, weights, filters, candidates)
    elif filters.min_p > 0:
        ids = np.flatnonzero(weights >= filters.min_p)
    else:
        return _invert(weights, noise)
    return int(ids[_invert(weights[ids], noise)])


def survivors(scores: Floats, weights: Floats, filters: Filters, candidates: Ids) -> Ids:
    """The ids that pass the filters, ascending. `weights` are probabilities relative to the highest one."""
    mass = None
    if not filters.top_k:
        mass = float(weights[weights >= filters.min_p].sum(dtype=np.float64))
    if filters.top_k <= len(candidates):
        ranked = _ranked(scores, candidates)
        kept = _count_kept(weights[ranked], filters, mass)
        # A lower score than the last survivor's among the candidates proves that all higher ones are there.
        if scores[ranked[kept - 1]] > scores[ranked[-1]]:
            return np.sort(ranked[:kept])
    ranked = _ranked(scores, np.arange(len(scores)))
    return np.sort(ranked[: _count_kept(weights[ranked], filters, mass)])


def _ranked(scores: Floats, ids: Ids) -> Ids:
    """Ids by falling score, equal ones by id."""
    return ids[np.lexsort((ids, -scores[ids]))]


def _count_kept(falling: Floats, filters: Filters, mass: float | None) -> int:
    """How many of the weights, which fall, survive. `mass` is the sum that top_p is a share of; None: of the top k."""
    count = int(np.count_nonzero(falling >= filters.min_p))
    if filters.top_k:
        count = min(count, filters.top_k)
    if filters.top_p < 1:
        sums = np.cumsum(falling[:count], dtype=np.float64)
        share = filters.top_p * (sums[-1] if mass is None else mass)
        count = min(count, int(np.searchsorted(sums, share)) + 1)
    return max(1, count)


def _invert(weights: Floats, noise: float) -> int:
    """The place of the weight in whose share of the sum `noise` falls, in two levels: of blocks, then in the block."""
    sums = np.cumsum(np.add.reduceat(weights, np.arange(0, len(weights), _SUM_WIDTH), dtype=np.float64))
    target = noise * sums[-1]
    block = _first_above(sums, target)
    if block:
        target -= sums[block - 1]
    start = block * _SUM_WIDTH
    inner = np.cumsum(weights[start : start + _SUM_WIDTH], dtype=np.float64)
    return start + _first_above(inner, target)


def _first_above(sums: npt.NDArray[np.float64], target: float) -> int:
    """The first place whose running sum is above the target; rounding may leave none, then the last that added."""
    place = int(np.searchsorted(sums, target, side="right"))
    return min(place, int(np.searchsorted(sums, sums[-1])))
