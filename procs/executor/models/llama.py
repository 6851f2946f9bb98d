"""The Llama family of decoders (Touvron et al. 2023), which Mistral without a sliding window belongs to.

Computes one step: a flat batch of tokens of many requests to hidden states, and some of those to
logits. Knows nothing of requests, sampling or where the KV cache's blocks come from.
"""

from __future__ import annotations

from functools import partial

import torch

from ..attention.backend import Attention
from ..kv_cache import KvCache, LayerCache
from ..layers.mlp import Mlp
from ..layers.norm import RmsNorm
from ..layers.self_attention import SelfAttention
from ..ops import Ops, RotateAndWrite, TorchOps
from ..weights.source import Weights
from .config import ModelConfig

_EMBEDDING = "model.embed_tokens.weight"
_HEAD = "lm_head.weight"


class Llama:
    """A decoder with its weights."""

    def __init__(
        self, config: ModelConfig, weights: Weights, max_positions: int, load_threads: int, ops: Ops | None = None
    ) -> None:
        """`max_positions` is how long a request may get, in tokens. Without `ops` they are torch's."""
        ops = ops or TorchOps(weights.dtype)
        parts = [partial(_Layer, weights, f"model.layers.{index}", config, ops) for index in range(config.layers)]
        shape = (config.vocab_size, config.hidden_size)
        self._ops = ops
        self._embedding = weights.take(_EMBEDDING, *shape)
        self._layers = weights.in_parallel(parts, load_threads)
        self._norm = RmsNorm(weights.take("model.norm.weight", config.hidden_size), config.rms_norm_eps, ops)
        self._head = ops.make_head(self._embedding if config.tied_embeddings else weights.take(_HEAD, *shape))
        self._rope = ops.make_rope(config, max_positions)
        weights.finish(unused=(_HEAD,) if config.tied_embeddings else ())

    def forward(
        self, tokens: torch.Tensor, positions: torch.Tensor, slots: torch.Tensor, cache: KvCache, attention: Attention
    ) -> torch.Tensor:
        """Hidden states [tokens, hidden] of a step.

        `tokens`, `positions` and `slots` (where in the cache the token's key and value go) are int64 [tokens].
        """
        residual = self._ops.embedding(tokens, self._embedding)
        rotate = self._rope.at(positions, slots)
        update: torch.Tensor | None = None
        for layer, layer_cache in zip(self._layers, cache.layers, strict=True):
            update = layer(residual, update, rotate, layer_cache, attention)
        return residual if update is None else residual.add_(update)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """[rows, hidden] to [rows, vocab_size]."""
        return self._head(self._norm(hidden))


class _Layer:
    """One layer. Adds to the residual stream in place, all but what its MLP computes: that is left to the next norm."""

    def __init__(self, weights: Weights, prefix: str, config: ModelConfig, ops: Ops) -> None:
        def norm(name: str) -> RmsNorm:
            return RmsNorm(weights.take(f"{prefix}.{name}.weight", config.hidden_size), config.rms_norm_eps, ops)

        self._attention_norm = norm("input_layernorm")
        self._attention = SelfAttention(weights, f"{prefix}.self_attn", config, ops)
        self._mlp_norm = norm("post_attention_layernorm")
        self._mlp = Mlp(weights, f"{prefix}.mlp", config, ops)

    def __call__(
        self,
        residual: torch.Tensor,
        update: torch.Tensor | None,
        rotate: RotateAndWrite,
        cache: LayerCache,
        attention: Attention,
    ) -> torch.Tensor:
        """What is to be added to the residual stream next; `update` is what the layer before has left to be added."""
        normed = self._attention_norm(residual) if update is None else self._attention_norm(update, residual)
        attended = self._attention(normed, rotate, cache, attention)
        return self._mlp(self._mlp_norm(attended, residual))
