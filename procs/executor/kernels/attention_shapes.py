"""The shapes that the attention kernels are made for: constants of a launch, and what is compiled ahead of time."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton

from .architectures import fp8_name
from .tuning import Tuning


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """Heads, block size and window (0: none) of a layer: what both kernels are compiled for."""

    heads: int
    kv_heads: int
    head_dim: int
    block_size: int = 16
    window: int = 0

    @classmethod
    def of(cls, queries: torch.Tensor, keys: torch.Tensor, window: int) -> AttentionShape:
        """From queries [T, Hq, D] and keys [blocks, block_size, Hk, D]."""
        _, block_size, kv_heads, head_dim = keys.shape
        return cls(queries.shape[1], kv_heads, head_dim, block_size, window)

    @property
    def group(self) -> int:
        """Query heads that share a key head."""
        return self.heads // self.kv_heads

    @property
    def constants(self) -> dict[str, int]:
        """The constants of a kernel. A head size that is no power of two is padded to the next."""
        return {
            "HEADS": self.heads,
            "KV_HEADS": self.kv_heads,
            "HEAD_DIM": self.head_dim,
            "BLOCK_SIZE": self.block_size,
            "WINDOW": self.window,
            "BLOCK_D": triton.next_power_of_2(self.head_dim),
        }

    def blocks(self, tuning: Tuning) -> dict[str, int]:
        """The block sizes of a tuning. Queries and keys are multiplied in pieces of BLOCK_K numbers of a head."""
        return {**tuning.blocks, "BLOCK_K": min(tuning.blocks["BLOCK_K"], self.constants["BLOCK_D"])}

    def __str__(self) -> str:
        window = f" window={self.window}" if self.window else ""
        return f"D={self.head_dim} heads={self.heads}/{self.kv_heads}{window}"


CASES = (
    AttentionShape(9, 3, 64),
    AttentionShape(32, 8, 128),
    AttentionShape(32, 8, 128, window=4096),
    AttentionShape(32, 32, 96),
    AttentionShape(8, 4, 256),
)
"""SmolLM2 135M, Llama 3 8B, Mistral 7B, Phi 3 mini, Gemma 2 2B."""


def typed_cases(arch: str) -> list[tuple[str, str, AttentionShape]]:
    """Types of queries and of the cache, as Triton writes them, and shapes: all in bf16, and some with other types."""
    small, middle, _, _, wide = CASES
    fp8 = fp8_name(arch)
    others = [("bf16", fp8, small), ("bf16", fp8, middle), ("bf16", fp8, wide), ("fp16", "fp16", middle)]
    return [("bf16", "bf16", shape) for shape in CASES] + others
