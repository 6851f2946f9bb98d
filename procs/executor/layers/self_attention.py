"""The attention block of a Llama layer: project, rotate, write to the KV cache, attend, project back."""

from __future__ import annotations

import torch

from ..attention.backend import Attention
from ..kv_cache import LayerCache
from ..models.config import ModelConfig
from ..ops import Ops, RotateAndWrite
from ..weights.source import Weights


class SelfAttention:
    """[tokens, hidden] to the same shape. How a query meets the cached keys is the step's Attention's business."""

    def __init__(self, weights: Weights, prefix: str, config: ModelConfig, ops: Ops) -> None:
        query, key_value = config.heads * config.head_dim, config.kv_heads * config.head_dim
        sizes = {"q_proj": query, "k_proj": key_value, "v_proj": key_value}
        qkv = [weights.take(f"{prefix}.{name}.weight", size, config.hidden_size) for name, size in sizes.items()]
        out = weights.take(f"{prefix}.o_proj.weight", config.hidden_size, query)
        qkv_bias = out_bias = None
        if config.attention_bias:
            qkv_bias = torch.cat([weights.take(f"{prefix}.{name}.bias", size) for name, size in sizes.items()])
            out_bias = weights.take(f"{prefix}.o_proj.bias", config.hidden_size)
        self._qkv = ops.make_linear(torch.cat(qkv), qkv_bias)
        self._out = ops.make_linear(out, out_bias)

    def __call__(
        self, hidden: torch.Tensor, rotate: RotateAndWrite, cache: LayerCache, attention: Attention
    ) -> torch.Tensor:
        queries = rotate(self._qkv(hidden), cache)
        return self._out(attention.attend(queries, cache).flatten(1))
