"""AITER in the place of our launchers: chosen by name where it is installed, never required, never trusted blindly."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from fourstroke.procs.executor.kernels.aiter import REPLACEMENTS, _aiter, best
from fourstroke.procs.executor.ops import TorchOps

FAKE = """
import torch
import torch.nn.functional as F

called = []

def rms_norm(input, weight, epsilon, use_model_sensitive_rmsnorm=0):
    called.append("rms_norm")
    return F.rms_norm(input, tuple(weight.shape), weight, epsilon)

def fused_add_rms_norm_cu(input, residual_in, weight, epsilon):
    called.append("fused_add_rms_norm_cu")
    residual_in.add_(input)
    input.copy_(F.rms_norm(residual_in, tuple(weight.shape), weight, epsilon))

def silu_and_mul(out, input, limit=0.0):
    called.append("silu_and_mul")
    gate, up = input.chunk(2, dim=-1)
    out.copy_(F.silu(gate) * up)
"""
"""The functions as AITER's repository declares them, computed by torch."""

OPS = TorchOps(torch.bfloat16)


def rms_norm(
    hidden: torch.Tensor, weight: torch.Tensor, eps: float, residual: torch.Tensor | None = None
) -> torch.Tensor:
    """Ours, as far as its name and its result go."""
    return OPS.rms_norm(hidden, weight, eps, residual)


def silu_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """Ours, as far as its name and its result go."""
    return OPS.silu_mul(gate_up)


def sample(logits: torch.Tensor) -> torch.Tensor:
    """One of ours that AITER does not replace."""
    return logits


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """The package is looked for once in a process; here once in a test."""
    _aiter.cache_clear()
    yield
    _aiter.cache_clear()
    sys.modules.pop("aiter", None)


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Installs a package that is called aiter."""

    def write(source: str) -> None:
        (tmp_path / "aiter.py").write_text(source)
        monkeypatch.syspath_prepend(tmp_path)
        importlib.invalidate_caches()

    return write


def numbers(*shape: int) -> torch.Tensor:
    """The same ones each time."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(7)).to(torch.bfloat16)


def test_not_installed() -> None:
    """Without the package our launchers are used, and nothing is said."""
    for ours in (rms_norm, silu_mul, sample):
        assert best(ours, "gfx942") is ours


def test_each_replacement_does_the_same(install: Callable[[str], None]) -> None:
    """The results are ours, the residual stream is added to in place, and AITER's functions did it."""
    install(FAKE)
    hidden, weight, residual, gate_up = numbers(3, 128), numbers(128), numbers(3, 128), numbers(3, 256)
    norm, product = best(rms_norm, "gfx942"), best(silu_mul, "gfx950")
    assert torch.equal(norm(hidden, weight, 1e-5), rms_norm(hidden, weight, 1e-5))
    assert torch.equal(product(gate_up), silu_mul(gate_up))
    theirs, expected = residual.clone(), residual.clone()
    added = rms_norm(hidden, weight, 1e-5, expected)
    assert torch.equal(norm(hidden.clone(), weight, 1e-5, theirs), added)
    assert torch.equal(theirs, expected)
    called = importlib.import_module("aiter").called
    assert called == ["rms_norm", "silu_and_mul", "fused_add_rms_norm_cu"]


def test_the_table_names_launchers(install: Callable[[str], None]) -> None:
    """Each entry stands for a launcher of ours in the file of its name; others stay ours."""
    install(FAKE)
    for name in REPLACEMENTS:
        module = importlib.import_module(f"fourstroke.procs.executor.kernels.{name}")
        assert callable(vars(module)[name])
    assert best(sample, "gfx942") is sample


@pytest.mark.parametrize(
    "hidden",
    [
        numbers(3, 128).float(),
        numbers(3, 96),
        numbers(0, 128),
        numbers(3, 256)[:, :128],
    ],
    ids=["float32", "odd width", "no rows", "strided"],
)
def test_what_it_cannot_take(install: Callable[[str], None], hidden: torch.Tensor) -> None:
    """Goes to our own kernel."""
    install(FAKE)
    weight = torch.ones(hidden.shape[1], dtype=hidden.dtype)
    assert torch.equal(best(rms_norm, "gfx942")(hidden, weight, 1e-5), rms_norm(hidden, weight, 1e-5))
    assert importlib.import_module("aiter").called == []


@pytest.mark.parametrize("arch", ["gfx90a", "gfx1100", "gfx1201", "other"])
def test_other_cards(install: Callable[[str], None], arch: str) -> None:
    """On cards that AITER does not call supported it is not even loaded."""
    install("raise AssertionError")
    assert best(rms_norm, arch) is rms_norm


@pytest.mark.parametrize(
    "source, words",
    [
        ("raise ImportError('libamdhip64.so.7')", r"cannot be loaded \(libamdhip64"),
        ("raise RuntimeError('no card')", r"cannot be loaded \(no card"),
        ("def rms_norm(input, weight, epsilon): ...", "lacks a function of"),
    ],
)
def test_an_installation_that_does_not_fit(
    install: Callable[[str], None], caplog: pytest.LogCaptureFixture, source: str, words: str
) -> None:
    """One that does not load, and one without a function that we know, are told and left alone."""
    install(source)
    assert best(rms_norm, "gfx942") is rms_norm
    (message,) = caplog.messages
    assert re.search(words, message)
