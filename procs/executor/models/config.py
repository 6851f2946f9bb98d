"""The facts of a model that the executor computes with, whatever kind of file they came from.

Knows no files and no tensors. weights/ makes it from a checkpoint; layers, memory sizing and the
runner read it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

ARCHITECTURES = ("LlamaForCausalLM", "MistralForCausalLM")
"""What models/llama.py computes, by Hugging Face's names."""


_SIZES = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "layers",
    "heads",
    "kv_heads",
    "head_dim",
    "max_position",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """A decoder of the Llama family.

    `rope_divisors` has one number for each of the head_dim / 2 frequencies, by which rope scaling
    divides it; empty means no scaling. `attention_bias` is about the q, k, v and output projections. Raises
    ValueError for numbers that describe no model.
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    max_position: int
    rms_norm_eps: float
    rope_theta: float
    rope_divisors: tuple[float, ...] = ()
    tied_embeddings: bool = False
    attention_bias: bool = False
    eos_token_ids: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name in _SIZES:
            size = getattr(self, name)
            if type(size) is not int or size < 1:
                raise ValueError(f"{name} is {size!r}")
        if self.heads % self.kv_heads:
            raise ValueError(f"{self.heads} heads cannot share {self.kv_heads} heads of keys and values")
        if self.head_dim % 2:
            raise ValueError(f"head_dim is {self.head_dim}, which is odd")
        if not (self.rope_theta > 0 and self.rms_norm_eps > 0):
            raise ValueError(f"rope_theta is {self.rope_theta} and rms_norm_eps {self.rms_norm_eps}")
        for token in self.eos_token_ids:
            if type(token) is not int or not 0 <= token < self.vocab_size:
                raise ValueError(f"EOS token {token!r} is outside the vocabulary of {self.vocab_size}")

    def kv_bytes_per_token(self, item_bytes: int) -> int:
        """What the KV cache of one token takes, all layers together."""
        return 2 * self.layers * self.kv_heads * self.head_dim * item_bytes


def linear_divisors(factor: float, head_dim: int) -> tuple[float, ...]:
    """Position interpolation: every frequency is divided by the same factor."""
    return (factor,) * (head_dim // 2)


def llama3_divisors(
    theta: float, head_dim: int, factor: float, low: float, high: float, original: int
) -> tuple[float, ...]:
    """Llama 3.1's scaling: slow frequencies are divided by `factor`, fast ones left, those between blended.

    `original` is the context length (tokens) the model was first trained with; `low` and `high` are
    low_freq_factor and high_freq_factor. Source: `_compute_llama3_parameters` in transformers.
    """
    divisors = []
    for index in range(head_dim // 2):
        wavelength = 2 * math.pi * theta ** (2 * index / head_dim)
        kept = min(1.0, max(0.0, (original / wavelength - low) / (high - low)))
        divisors.append(1 / ((1 - kept) / factor + kept))
    return tuple(divisors)
