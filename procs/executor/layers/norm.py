"""Root mean square normalisation (Zhang and Sennrich 2019)."""

from __future__ import annotations

import torch

from ..ops import Ops


class RmsNorm:
    """[tokens, hidden] to the same shape; the mean is taken in float32."""

    def __init__(self, weight: torch.Tensor, eps: float, ops: Ops) -> None:
        self._weight = weight
        self._eps = eps
        self._ops = ops

    def __call__(self, hidden: torch.Tensor, residual: torch.Tensor | None = None) -> torch.Tensor:
        """With a `residual`, hidden is added to it in place first, and the sum normalised."""
        return self._ops.rms_norm(hidden, self._weight, self._eps, residual)
