"""The Llama family of decoders (Touvron et al. 2023), which Mistral without a sliding window belongs to.

Computes one step: a flat batch of tokens of many requests to hidden states, and some of those to
logits. Knows nothing of requests, sampling or where the KV cache's blocks come from.
"""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)

from ..attention.backend import Attention
from ..kv_cache import KvCache, LayerCache
from ..layers.linear import Linear, make_linear
from ..layers.mlp import Mlp
from ..layers.norm import RmsNorm
from ..layers.rope import RotaryEmbedding, Rotation
from ..layers.self_attention import SelfAttention
from ..weights.source import Weights
from .config import ModelConfig

_EMBEDDING = "model.embed_tokens.weight"
_HEAD = "lm_head.weight"


class Llama:
    """A decoder with its weights."""

    def __init__(self, config: ModelConfig, weights: Weights, max_positions: int, load_threads: int) -> None:
        """`max_positions` is how long a request may get, in tokens."""
        parts = [partial(_Layer, weights, f"model.layers.{index}", config) for index in range(config.layers)]
        shape = (config.vocab_size, config.hidden_size)
        self._embedding = weights.take(_EMBEDDING, *shape)
        self._layers = weights.in_parallel(parts, load_threads)
        self._norm = RmsNorm(weights.take("model.norm.weight", config.hidden_size), config.rms_norm_eps)
        head = self._embedding if config.tied_embeddings else weights.take(_HEAD, *shape)
        self._head: Linear = make_linear(head)
        self._rope = RotaryEmbedding(config, max_positions, weights.dtype)
        weights.finish(unused=(_HEAD,) if config.tied_embeddings else ())

    def forward(
        self, tokens: torch.Tensor, positions: torch.Tensor, slots: torch.Tensor, cache: KvCache, attention: Attention
    ) -> torch.Tensor:
        """Hidden states [tokens, hidden] of a step.

        `tokens`, `positions` and `slots` (where in the cache the token's key and value go) are int64 [tokens].
        """
        hidden = F.embedding(tokens, self._embedding)
        rotation = self._rope.at(positions)
        for layer, layer_cache in zip(self._layers, cache.layers, strict=True):
            layer(hidden, rotation, slots, layer_cache, attention)
        return hidden

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """[rows, hidden] to [rows, vocab_size]."""
        return self._head(self._norm(hidden))


class _Layer:
    """One layer. Adds to the hidden states in place: they are the residual stream."""

    def __init__(self, weights: Weights, prefix: str, config: ModelConfig) -> None:
        def norm(name: str) -> RmsNorm:
            return RmsNorm(weights.take(f"{prefix}.{name}.weight", config.hidden_size), config.rms_norm_eps)

        self._attention_norm = norm("input_layernorm")
        self._attention = SelfAttention(weights, f"{prefix}.self_attn", config)
        self._mlp_norm = norm("post_attention_layernorm")
        self._mlp = Mlp(weights, f"{prefix}.mlp", config)

    def __call__(
        self, hidden: torch.Tensor, rotation: Rotation, slots: torch.Tensor, cache: LayerCache, attention: Attention
    ) -> None:
        hidden += self._attention(self._attention_norm(hidden), rotation, slots, cache, attention)
        hidden += self._mlp(self._mlp_norm(hidden))
