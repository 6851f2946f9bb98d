"""Number types by card: the 8-bit float is the running card's own."""

import pytest
import torch

from fourstroke.common.config import Config
from fourstroke.common.errors import ConfigError
from fourstroke.procs.executor.device.precision import (
    CardTypes,
    Precision,
    amd_types,
    choose_precision,
    nvidia_types,
)


def config(**changes: object) -> Config:
    return Config(model="m", served_model_names=("m",), **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "arch, fp8",
    [
        ("gfx90a", None),
        ("gfx942", torch.float8_e4m3fnuz),
        ("gfx950", torch.float8_e4m3fn),
        ("gfx1100", None),
        ("gfx1201", torch.float8_e4m3fn),
        ("gfx9999", None),
    ],
)
def test_amd(arch: str, fp8: torch.dtype | None) -> None:
    """As AMD's architectures have it; one that is not known is taken to have none."""
    assert amd_types(arch).fp8 == fp8


@pytest.mark.parametrize(
    "capability, wide, fp8",
    [
        ((7, 5), torch.float16, None),
        ((8, 0), torch.bfloat16, None),
        ((8, 9), torch.bfloat16, torch.float8_e4m3fn),
        ((10, 0), torch.bfloat16, torch.float8_e4m3fn),
    ],
    ids=str,
)
def test_nvidia(capability: tuple[int, int], wide: torch.dtype, fp8: torch.dtype | None) -> None:
    """By compute capability, compared as numbers."""
    types = nvidia_types(capability)
    assert (types.wide, types.fp8) == (wide, fp8)


MI300 = amd_types("gfx942")


@pytest.mark.parametrize(
    "changes, precision",
    [
        ({}, Precision(torch.bfloat16, torch.bfloat16, None)),
        ({"dtype": "float16"}, Precision(torch.float16, torch.float16, None)),
        ({"dtype": "float32", "kv_cache_dtype": "bfloat16"}, Precision(torch.float32, torch.bfloat16, None)),
        ({"kv_cache_dtype": "fp8"}, Precision(torch.bfloat16, torch.float8_e4m3fnuz, None)),
        ({"quantization": "none"}, Precision(torch.bfloat16, torch.bfloat16, None)),
        ({"quantization": "fp8"}, Precision(torch.bfloat16, torch.bfloat16, torch.float8_e4m3fnuz)),
    ],
    ids=str,
)
def test_flags(changes: dict[str, object], precision: Precision) -> None:
    """The cache has the activations' type unless told otherwise; weights are quantized only if told."""
    assert choose_precision(config(**changes), MI300) == precision


@pytest.mark.parametrize("flag", ["quantization", "kv_cache_dtype"])
def test_a_card_without(flag: str) -> None:
    """A flag that the card cannot keep is refused, with the card's name."""
    with pytest.raises(ConfigError, match=f"--{flag.replace('_', '-')} fp8: this card .gfx90a. has no"):
        choose_precision(config(**{flag: "fp8"}), amd_types("gfx90a"))


@pytest.mark.parametrize("quantization", ["int8", "int4"])
def test_formats_of_the_cpu(quantization: str) -> None:
    """They are refused, not ignored."""
    with pytest.raises(ConfigError, match=f"--quantization {quantization} is not there on a GPU"):
        choose_precision(config(quantization=quantization), MI300)


def test_auto_is_the_cards_own() -> None:
    """A card without bfloat16 computes in float16."""
    assert choose_precision(config(), CardTypes("old", torch.float16, None)).dtype == torch.float16
