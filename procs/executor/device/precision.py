"""The number types that a card computes with: weights, activations, KV cache.

Which 8-bit float a card has is asked of the card that runs, never of the build: e4m3fnuz on gfx942, OCP's e4m3fn on
gfx950, gfx1201 and NVIDIA's from 8.9 on, none on gfx90a and gfx1100.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ....common.config import Config
from ....common.errors import ConfigError
from ..dtypes import torch_dtype
from ..kernels.architectures import ARCHITECTURES, TRITON_FP8, architecture_of
from ..kernels.tuning import OTHER

_FP8_SINCE = (8, 9)
_BFLOAT16_SINCE = (8, 0)
"""Compute capabilities of NVIDIA's cards."""


@dataclass(frozen=True, slots=True)
class CardTypes:
    """What a card multiplies: its 16-bit type of choice, and its 8-bit type if it has one."""

    name: str
    wide: torch.dtype
    fp8: torch.dtype | None


@dataclass(frozen=True, slots=True)
class Precision:
    """What is used: activations and plain weights, the KV cache, and quantized weights if there are any."""

    dtype: torch.dtype
    cache: torch.dtype
    weights: torch.dtype | None


def amd_types(arch: str) -> CardTypes:
    """Those of an architecture by its name, "gfx942". One that we do not know is taken to have no 8-bit floats."""
    known = ARCHITECTURES.get(arch)
    fp8 = None if known is None or known.fp8 is None else TRITON_FP8[known.fp8]
    return CardTypes(arch, torch.bfloat16, fp8)


def nvidia_types(capability: tuple[int, int]) -> CardTypes:
    """Those of a compute capability."""
    wide = torch.bfloat16 if capability >= _BFLOAT16_SINCE else torch.float16
    return CardTypes(
        f"compute capability {'.'.join(map(str, capability))}",
        wide,
        torch.float8_e4m3fn if capability >= _FP8_SINCE else None,
    )


def card_types(device: torch.device) -> CardTypes:
    """Those of a device that is there; on a CPU, where kernels are interpreted, all."""
    if device.type != "cuda":
        return CardTypes(OTHER, torch.bfloat16, torch.float8_e4m3fn)
    if torch.version.hip:
        return amd_types(architecture_of(device))
    return nvidia_types(torch.cuda.get_device_capability(device))


def choose_precision(config: Config, types: CardTypes) -> Precision:
    """What the flags ask for; nothing is quantized unless they do. Raises ConfigError for what a card does not have."""
    dtype = torch_dtype(config.dtype, types.wide)
    weights = _fp8("--quantization", types) if config.quantization == "fp8" else None
    if config.quantization not in ("auto", "none", "fp8"):
        raise ConfigError(f"--quantization {config.quantization} is not there on a GPU, only none and fp8")
    if config.kv_cache_dtype == "fp8":
        return Precision(dtype, _fp8("--kv-cache-dtype", types), weights)
    return Precision(dtype, torch_dtype(config.kv_cache_dtype, dtype), weights)


def _fp8(flag: str, types: CardTypes) -> torch.dtype:
    if types.fp8 is None:
        raise ConfigError(f"{flag} fp8: this card ({types.name}) has no 8-bit floats")
    return types.fp8
