"""How each kernel is launched on each architecture: block sizes, waves and pipeline stages, as data.

Pure data and its lookup: no torch, no Triton. The launchers ask, and so do the `variants` that are compiled ahead of
time, so that what is proven is what runs. A block size is part of a kernel's reduction order, so nothing here depends
on the batch. The figures were chosen without a card, from the assembly: no spills, matrix instructions, high occupancy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Tuning:
    """How a kernel is launched. `blocks` has its block sizes by the names of its tl.constexpr arguments."""

    num_warps: int = 4
    """Waves of a program, of 32 or 64 lanes as the card has it."""
    num_stages: int = 1
    """Tiles of a loop that are on their way at once; each takes its share of the LDS."""
    waves_per_eu: int = 0
    """The occupancy that the compiler aims at; 0: its own choice. Only for AMD."""
    fp_fusion: bool = True
    """a * b + c may be rounded once. Off where a result must be the CPU's, bit for bit."""
    blocks: Mapping[str, int] = field(default_factory=dict)

    @property
    def options(self) -> dict[str, Any]:
        """The keywords of a launch and of a compilation: kernel[grid](..., **tuning.options).

        Whether to fuse is always said: Triton's own choice changes from version to version.
        """
        options = {"num_warps": self.num_warps, "num_stages": self.num_stages, "enable_fp_fusion": self.fp_fusion}
        return {**options, "waves_per_eu": self.waves_per_eu} if self.waves_per_eu else options


OTHER = "other"
"""The architecture of all that has no row of its own: a CUDA card, an AMD card that we do not know, the interpreter."""

CDNA = ("gfx90a", "gfx942", "gfx950")
RDNA = ("gfx1100", "gfx1201")

TABLE: dict[str, dict[str, Tuning]] = {
    "rms_norm": {OTHER: Tuning(num_warps=4)},
    "rotate_and_write": {OTHER: Tuning(num_warps=4)},
    "silu_mul": {OTHER: Tuning(num_warps=4, blocks={"BLOCK": 1024})},
    # With a whole head of queries as an operand, gfx11 and gfx12 spill; a wave of 32 lanes has 256 registers in each.
    "decode_attention": {
        OTHER: Tuning(num_warps=4, blocks={"BLOCK_N": 64, "BLOCK_K": 64}),
        **dict.fromkeys(RDNA, Tuning(num_warps=4, blocks={"BLOCK_N": 32, "BLOCK_K": 32})),
    },
    "decode_attention_wide": {
        OTHER: Tuning(num_warps=4, blocks={"BLOCK_N": 32, "BLOCK_K": 64}),
        **dict.fromkeys(RDNA, Tuning(num_warps=4, blocks={"BLOCK_N": 32, "BLOCK_K": 32})),
    },
    "decode_combine": {OTHER: Tuning(num_warps=2, blocks={"BLOCK_P": 16})},
    # 128 rows are 32, a matrix instruction's, for each of four waves: with 64, two waves compute the same scores.
    "prefill_attention": {
        OTHER: Tuning(num_warps=4, blocks={"BLOCK_M": 64, "BLOCK_N": 32, "BLOCK_K": 128}),
        **dict.fromkeys(CDNA, Tuning(num_warps=4, blocks={"BLOCK_M": 128, "BLOCK_N": 32, "BLOCK_K": 128})),
        **dict.fromkeys(RDNA, Tuning(num_warps=8, blocks={"BLOCK_M": 128, "BLOCK_N": 32, "BLOCK_K": 32})),
    },
    "prefill_attention_wide": {
        OTHER: Tuning(num_warps=4, blocks={"BLOCK_M": 64, "BLOCK_N": 32, "BLOCK_K": 64}),
        **dict.fromkeys(RDNA, Tuning(num_warps=8, blocks={"BLOCK_M": 64, "BLOCK_N": 32, "BLOCK_K": 64})),
    },
    # float32 with a K that is no multiple of the tile spills on gfx11 and gfx12 with two stages or a longer tile.
    "matmul": {
        OTHER: Tuning(num_warps=4, num_stages=2, blocks={"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64}),
        **dict.fromkeys(RDNA, Tuning(num_warps=8, blocks={"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32})),
    },
    # gfx90a widens 8-bit floats by arithmetic, and spills with four waves; on gfx11 and gfx12 eight hold 16 on a SIMD.
    "scaled_matmul": {
        OTHER: Tuning(num_warps=4, num_stages=2, blocks={"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64}),
        **dict.fromkeys(
            ("gfx90a", *RDNA),
            Tuning(num_warps=8, num_stages=2, blocks={"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64}),
        ),
    },
    "sample": {OTHER: Tuning(num_warps=4, blocks={"BLOCK": 1024})},
    "sample_cuts": {OTHER: Tuning(num_warps=8, blocks={"BLOCK": 4096})},
    "penalties": {OTHER: Tuning(num_warps=4, blocks={"BLOCK": 1024})},
    "mask": {OTHER: Tuning(num_warps=4, blocks={"BLOCK": 1024})},
}
"""By kernel, then by architecture."""


def tuning(kernel: str, arch: str) -> Tuning:
    """How to launch a kernel on an architecture. A kernel that is not in the table is a KeyError: a mistake of ours."""
    rows = TABLE[kernel]
    return rows.get(arch, rows[OTHER])
