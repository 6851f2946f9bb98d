"""The attention block of a Llama layer: project, rotate, write to the KV cache, attend, project back."""

from __future__ import annotations

import torch

from ..attention.backend import Attention
from ..kv_cache import LayerCache
from ..models.config import ModelConfig
from ..weights.source import Weights
from .linear import make_linear
from .rope import Rotation


class SelfAttention:
    """[tokens, hidden] to the same shape. How a query meets the cached keys is the step's Attention's business."""

    def __init__(self, weights: Weights, prefix: str, config: ModelConfig) -> None:
        self._heads = config.heads
        self._kv_heads = config.kv_heads
        self._head_dim = config.head_dim
        query, key_value = config.heads * config.head_dim, config.kv_heads * config.head_dim
        sizes = {"q_proj": query, "k_proj": key_value, "v_proj": key_value}
        qkv = [weights.take(f"{prefix}.{name}.weight", size, config.hidden_size) for name, size in sizes.items()]
        out = weights.take(f"{prefix}.o_proj.weight", config.hidden_size, query)
        qkv_bias = out_bias = None
        if config.attention_bias:
            qkv_bias = torch.cat([weights.take(f"{prefix}.{name}.bias", size) for name, size in sizes.items()])
            out_bias = weights.take(f"{prefix}.o_proj.bias", config.hidden_size)
        self._qkv = make_linear(torch.cat(qkv), qkv_bias)
        self._out = make_linear(out, out_bias)

    def __call__(
        self, hidden: torch.Tensor, rotation: Rotation, slots: torch.Tensor, cache: LayerCache, attention: Attention
    ) -> torch.Tensor:
        turning = self._heads + self._kv_heads
        projected = self._qkv(hidden).view(len(hidden), turning + self._kv_heads, self._head_dim)
        turned = rotation.turn(projected[:, :turning])
        cache.write(slots, turned[:, self._heads :], projected[:, turning:])
        mixed = attention.attend(turned[:, : self._heads], cache)
        return self._out(mixed.view(len(hidden), -1))
