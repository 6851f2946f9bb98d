"""The feed-forward block of a Llama layer: SwiGLU (Shazeer 2020), gate and up projection in one."""

from __future__ import annotations

import torch

from ..models.config import ModelConfig
from ..ops import Ops
from ..weights.source import Weights


class Mlp:
    """[tokens, hidden] to the same shape."""

    def __init__(self, weights: Weights, prefix: str, config: ModelConfig, ops: Ops) -> None:
        hidden, inner = config.hidden_size, config.intermediate_size
        gate = weights.take(f"{prefix}.gate_proj.weight", inner, hidden)
        up = weights.take(f"{prefix}.up_proj.weight", inner, hidden)
        self._ops = ops
        self._gate_up = ops.make_linear(torch.cat((gate, up)))
        self._down = ops.make_linear(weights.take(f"{prefix}.down_proj.weight", hidden, inner))

    def __call__(self, hidden: torch.Tensor) -> torch.Tensor:
        return self._down(self._ops.silu_mul(self._gate_up(hidden)))
