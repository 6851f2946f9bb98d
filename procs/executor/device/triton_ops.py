"""A model's operations on a device: our Triton kernels, and the library's matrix products. See ops.Ops.

Imports Triton, so only what runs on a device imports this.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)

from ..kernels.rms_norm import rms_norm
from ..kernels.rope import rotate_and_write
from ..kernels.silu_mul import silu_mul
from ..kv_cache import LayerCache
from ..layers.linear import Linear
from ..layers.rope import cosines_and_sines
from ..models.config import ModelConfig
from ..ops import Rope, RotateAndWrite
from .linear import LinearMaker


class TritonOps:
    """See ops.Ops."""

    def __init__(self, linears: LinearMaker, device: torch.device) -> None:
        self._linears = linears
        self._device = device

    def make_linear(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> Linear:
        return self._linears.quantized(weight, bias)

    def make_head(self, weight: torch.Tensor) -> Linear:
        return self._linears.plain(weight)

    def make_rope(self, config: ModelConfig, positions: int) -> Rope:
        cos, sin = (part.to(self._device) for part in cosines_and_sines(config, positions))
        return _TritonRope(cos, sin, config.heads)

    def embedding(self, tokens: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return F.embedding(tokens, weight)

    def rms_norm(
        self, hidden: torch.Tensor, weight: torch.Tensor, eps: float, residual: torch.Tensor | None = None
    ) -> torch.Tensor:
        return rms_norm(hidden, weight, eps, residual)

    def silu_mul(self, gate_up: torch.Tensor) -> torch.Tensor:
        return silu_mul(gate_up)


class _TritonRope:
    """`cos` and `sin` are float32 [positions, head_dim / 2]."""

    def __init__(self, cos: torch.Tensor, sin: torch.Tensor, heads: int) -> None:
        self._cos = cos
        self._sin = sin
        self._heads = heads

    def at(self, positions: torch.Tensor, slots: torch.Tensor) -> RotateAndWrite:
        def rotate(qkv: torch.Tensor, cache: LayerCache) -> torch.Tensor:
            return rotate_and_write(
                qkv,
                self._cos,
                self._sin,
                positions,
                slots,
                cache.keys,
                cache.values,
                self._heads,
                cache.key_scale,
                cache.value_scale,
            )

        return rotate
