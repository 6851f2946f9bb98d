"""The architectures, and which one a device is."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from fourstroke.procs.executor.kernels import architectures
from fourstroke.procs.executor.kernels.architectures import ARCHITECTURES, OTHER, TRITON_FP8, architecture_of, fp8_name


@pytest.fixture(autouse=True)
def nothing_remembered() -> None:
    """The architecture of a device is asked once in a process; in each test here it is another."""
    architecture_of.cache_clear()


@pytest.mark.parametrize(
    "reported, name",
    [
        ("gfx942:sramecc+:xnack-", "gfx942"),
        ("gfx90a:sramecc+:xnack-", "gfx90a"),
        ("gfx1100", "gfx1100"),
        ("gfx906:sramecc+:xnack-", OTHER),
    ],
)
def test_a_card(monkeypatch: pytest.MonkeyPatch, reported: str, name: str) -> None:
    """The running card is asked; its features do not matter, and one that we do not know is any other."""
    monkeypatch.setattr(torch.version, "hip", "7.0")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(gcnArchName=reported))
    assert architecture_of(torch.device("cuda", 0)) == name


def test_no_card_of_amd(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU and a CUDA card are any other architecture: nobody is asked."""
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.delattr(torch.cuda, "get_device_properties")
    assert architecture_of(torch.device("cpu")) == architecture_of(torch.device("cuda", 0)) == OTHER


def test_fp8() -> None:
    """Each card has the variant of its matrix units: fnuz on MI300, OCP's on later ones and where there are none."""
    assert {arch: fp8_name(arch) for arch in (*ARCHITECTURES, OTHER)} == {
        "gfx90a": "fp8e4nv",
        "gfx942": "fp8e4b8",
        "gfx950": "fp8e4nv",
        "gfx1100": "fp8e4nv",
        "gfx1201": "fp8e4nv",
        "other": "fp8e4nv",
    }
    assert TRITON_FP8[fp8_name("gfx942")] is torch.float8_e4m3fnuz
    assert TRITON_FP8[fp8_name("gfx950")] is torch.float8_e4m3fn


def test_waves() -> None:
    """CDNA has waves of 64 lanes, RDNA of 32; no program may have more LDS than those on its SIMDs share."""
    for architecture in architectures.ARCHITECTURES.values():
        assert architecture.wave == (64 if architecture.name.startswith("gfx9") else 32)
        assert architecture.lds_bytes <= architecture.lds_pool_bytes
