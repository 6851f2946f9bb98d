"""Rotary position embedding (Su et al. 2021), rotating the two halves of a head as Hugging Face does."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ..models.config import ModelConfig


@dataclass(frozen=True, slots=True)
class Rotation:
    """How far to turn the tokens of a step: cosines and sines [tokens, 1, head_dim / 2]."""

    cos: torch.Tensor
    sin: torch.Tensor

    def turn(self, heads: torch.Tensor) -> torch.Tensor:
        """Rotate [tokens, heads, head_dim]. Four operations into one result: `cat` of the halves would copy twice."""
        left, right = heads.chunk(2, dim=-1)
        turned = torch.empty_like(heads, memory_format=torch.contiguous_format)
        new_left, new_right = turned.chunk(2, dim=-1)
        torch.mul(left, self.cos, out=new_left).addcmul_(right, self.sin, value=-1)
        torch.mul(right, self.cos, out=new_right).addcmul_(left, self.sin)
        return turned


def rotation_angles(config: ModelConfig, positions: int) -> torch.Tensor:
    """How far the pairs of a head are turned at all positions below `positions`: float32 [positions, head_dim / 2]."""
    exponents = torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim
    frequencies = 1.0 / config.rope_theta**exponents
    if config.rope_divisors:
        frequencies /= torch.tensor(config.rope_divisors, dtype=torch.float32)
    return torch.outer(torch.arange(positions, dtype=torch.float32), frequencies)


def cosines_and_sines(config: ModelConfig, positions: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Those of all angles at positions below `positions`: float32 [positions, head_dim / 2] each."""
    angles = rotation_angles(config, positions)
    return angles.cos(), angles.sin()


class RotaryEmbedding:
    """The cosines and sines of all positions below `positions`."""

    def __init__(self, config: ModelConfig, positions: int, dtype: torch.dtype) -> None:
        self._cos, self._sin = (part[:, None].to(dtype) for part in cosines_and_sines(config, positions))

    def at(self, positions: torch.Tensor) -> Rotation:
        """The rotation of tokens at these positions (int64)."""
        return Rotation(self._cos.index_select(0, positions), self._sin.index_select(0, positions))
