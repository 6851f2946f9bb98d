"""Root mean square normalisation (Zhang and Sennrich 2019)."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)


class RmsNorm:
    """[tokens, hidden] to the same shape; the mean is taken in float32."""

    def __init__(self, weight: torch.Tensor, eps: float) -> None:
        self._weight = weight
        self._shape = tuple(weight.shape)
        self._eps = eps

    def __call__(self, hidden: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(hidden, self._shape, self._weight, self._eps)
