"""The feed-forward block of a Llama layer: SwiGLU (Shazeer 2020), gate and up projection in one."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)

from ..models.config import ModelConfig
from ..weights.source import Weights
from .linear import make_linear


class Mlp:
    """[tokens, hidden] to the same shape."""

    def __init__(self, weights: Weights, prefix: str, config: ModelConfig) -> None:
        hidden, inner = config.hidden_size, config.intermediate_size
        gate = weights.take(f"{prefix}.gate_proj.weight", inner, hidden)
        up = weights.take(f"{prefix}.up_proj.weight", inner, hidden)
        self._gate_up = make_linear(torch.cat((gate, up)))
        self._down = make_linear(weights.take(f"{prefix}.down_proj.weight", hidden, inner))

    def __call__(self, hidden: torch.Tensor) -> torch.Tensor:
        gate, up = self._gate_up(hidden).chunk(2, dim=-1)
        return self._down(F.silu(gate).mul_(up))
