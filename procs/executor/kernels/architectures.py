"""The GPU architectures that the kernels are compiled for, what each can do, and which one a device is.

The width of a wave stands here and nowhere else: no kernel has it as a literal.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch

from .tuning import OTHER

KIB = 1024


@dataclass(frozen=True, slots=True)
class Architecture:
    """One architecture."""

    name: str
    cards: str
    wave: int
    """Lanes of a wave."""
    lds_bytes: int
    """Local memory (LDS) that one program may have."""
    lds_pool_bytes: int
    """What the programs on four SIMDs share: the LDS of a compute unit, on gfx11 and 12 of a workgroup processor."""
    fp8: str | None
    """The 8-bit float of its matrix units, as Triton calls it; None: they have none."""


ARCHITECTURES = {
    architecture.name: architecture
    for architecture in (
        Architecture("gfx90a", "MI200", wave=64, lds_bytes=64 * KIB, lds_pool_bytes=64 * KIB, fp8=None),
        Architecture("gfx942", "MI300", wave=64, lds_bytes=64 * KIB, lds_pool_bytes=64 * KIB, fp8="fp8e4b8"),
        Architecture("gfx950", "MI350", wave=64, lds_bytes=160 * KIB, lds_pool_bytes=160 * KIB, fp8="fp8e4nv"),
        Architecture("gfx1100", "RX 7900, W7900", wave=32, lds_bytes=64 * KIB, lds_pool_bytes=128 * KIB, fp8=None),
        Architecture("gfx1201", "RX 9070", wave=32, lds_bytes=64 * KIB, lds_pool_bytes=128 * KIB, fp8="fp8e4nv"),
    )
}

TRITON_FP8 = {"fp8e4b8": torch.float8_e4m3fnuz, "fp8e4nv": torch.float8_e4m3fn}
"""Triton's names of 8-bit floats, and torch's types."""


def fp8_name(arch: str) -> str:
    """The 8-bit float of a KV cache, as Triton calls it: that of the matrix units; where they have none, OCP's."""
    known = ARCHITECTURES.get(arch)
    return known.fp8 if known is not None and known.fp8 is not None else "fp8e4nv"


@cache
def architecture_of(device: torch.device) -> str:
    """The architecture of a device, "gfx942"; OTHER for a CPU or a CUDA card. Asks the running card, not the build."""
    if device.type != "cuda" or torch.version.hip is None:
        return OTHER
    name = torch.cuda.get_device_properties(device).gcnArchName.partition(":")[0]  # "gfx942:sramecc+:xnack-"
    return name if name in ARCHITECTURES else OTHER
