"""The operations that models are built of, as one interface, and what they are in plain torch.

A model file says which operations there are and in which order; `Ops` says how they are done. TorchOps is the
CPU's way and what others are compared with; device/triton_ops.py has the kernels of a GPU. Attention
is apart (attention/backend.py): it is made anew for each step.
"""

from __future__ import annotations

from typing import Protocol

import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)

from .kv_cache import LayerCache
from .layers.linear import Linear, make_linear
from .layers.rope import RotaryEmbedding, Rotation
from .models.config import ModelConfig


class RotateAndWrite(Protocol):
    """Rotary embedding of a step's tokens: made once a step, used by every layer."""

    def __call__(self, qkv: torch.Tensor, cache: LayerCache) -> torch.Tensor:
        """Rotate queries and keys, put keys and values into the cache; the queries [tokens, heads, head_dim].

        `qkv` is [tokens, (heads + 2 kv_heads) head_dim]: all queries, then keys, then values.
        """
        ...


class Rope(Protocol):
    """The rotary embedding of a model."""

    def at(self, positions: torch.Tensor, slots: torch.Tensor) -> RotateAndWrite:
        """That of tokens at these positions, whose keys and values go into these slots (both int64 [tokens])."""
        ...


class Ops(Protocol):
    """How a model's operations are done. What is made here (`make_...`) is made once, while the model is built."""

    def make_linear(self, weight: torch.Tensor, bias: torch.Tensor | None = None, /) -> Linear:
        """A projection inside of a layer by a weight [out, in], which may be quantized, and maybe a bias [out]."""
        ...

    def make_head(self, weight: torch.Tensor, /) -> Linear:
        """The projection to logits by a weight [vocabulary, hidden], which is not quantized."""
        ...

    def make_rope(self, config: ModelConfig, positions: int, /) -> Rope:
        """Rotary embedding at positions below `positions`."""
        ...

    def embedding(self, tokens: torch.Tensor, weight: torch.Tensor, /) -> torch.Tensor:
        """Rows of weight [vocabulary, hidden] for tokens (int64 [tokens]), in memory of their own."""
        ...

    def rms_norm(
        self, hidden: torch.Tensor, weight: torch.Tensor, eps: float, residual: torch.Tensor | None = None, /
    ) -> torch.Tensor:
        """Normalise [tokens, hidden]. With a `residual` hidden is added to it in place, and the sum normalised."""
        ...

    def silu_mul(self, gate_up: torch.Tensor, /) -> torch.Tensor:
        """silu(gate) * up of [tokens, 2 inner], the gate first: [tokens, inner]."""
        ...


class TorchOps:
    """See Ops. `dtype` is what the model computes in."""

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype

    def make_linear(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> Linear:
        return make_linear(weight, bias)

    def make_head(self, weight: torch.Tensor) -> Linear:
        return make_linear(weight)

    def make_rope(self, config: ModelConfig, positions: int) -> Rope:
        return _TorchRope(RotaryEmbedding(config, positions, self._dtype), config)

    def embedding(self, tokens: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return F.embedding(tokens, weight)

    def rms_norm(
        self, hidden: torch.Tensor, weight: torch.Tensor, eps: float, residual: torch.Tensor | None = None
    ) -> torch.Tensor:
        if residual is not None:
            hidden = residual.add_(hidden)
        return F.rms_norm(hidden, tuple(weight.shape), weight, eps)

    def silu_mul(self, gate_up: torch.Tensor) -> torch.Tensor:
        gate, up = gate_up.chunk(2, dim=-1)
        return F.silu(gate).mul_(up)


class _TorchRope:
    def __init__(self, embedding: RotaryEmbedding, config: ModelConfig) -> None:
        self._embedding = embedding
        self._config = config

    def at(self, positions: torch.Tensor, slots: torch.Tensor) -> RotateAndWrite:
        return _TorchRotateAndWrite(self._embedding.at(positions), slots, self._config)


class _TorchRotateAndWrite:
    def __init__(self, rotation: Rotation, slots: torch.Tensor, config: ModelConfig) -> None:
        self._rotation = rotation
        self._slots = slots
        self._heads, self._kv_heads, self._head_dim = config.heads, config.kv_heads, config.head_dim

    def __call__(self, qkv: torch.Tensor, cache: LayerCache) -> torch.Tensor:
        turning = self._heads + self._kv_heads
        projected = qkv.view(len(qkv), turning + self._kv_heads, self._head_dim)
        turned = self._rotation.turn(projected[:, :turning])
        cache.write(self._slots, turned[:, self._heads :], projected[:, turning:])
        return turned[:, : self._heads]
