"""Each line that the doctor says of a torch, with facts that no machine here has."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from torch import get_num_threads

from fourstroke.common.finding import Finding, Level
from fourstroke.procs.executor.doctor.checks import check
from fourstroke.procs.executor.doctor.facts import Build, Card, Order, Torch, look

GIB = 1 << 30
CARD = Card("A Card", "gfx942", 192 * GIB, 190 * GIB)
ROCM = Torch(
    version="2.9.1+rocm6.4",
    build=Build.ROCM,
    runtime="6.4.43482",
    threads=8,
    capability="AVX512",
    archs=("gfx90a", "gfx942", "gfx1030"),
    cards=(CARD, CARD),
    fault="",
    triton="3.5",
    aiter="0.1",
    collectives="2.26.6",
)
CPU = dataclasses.replace(ROCM, version="2.13.0+cpu", build=Build.CPU, runtime="", cards=(), archs=(), triton=None)
BLIND = {"cards": (), "archs": (), "fault": "No HIP GPUs are available"}
ORDER = Order(cores=8, amd_cards=2, variables=(), kernels="")
NO_CARDS = dataclasses.replace(ORDER, amd_cards=0)
HIDDEN = dataclasses.replace(ORDER, variables=("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"))


def cards(**changes: Any) -> dict[str, Any]:
    """Two cards, of which the second is another."""
    return {"cards": (CARD, dataclasses.replace(CARD, **changes))}


FLAWS: list[tuple[str, Level, dict[str, Any], Order, str]] = [
    ("torch", Level.RED, {"version": "2.7.1+rocm6.3"}, ORDER, "2.8"),
    ("torch", Level.RED, {"build": Build.CUDA}, ORDER, "TORCH_INDEX_URL"),
    ("devices", Level.RED, BLIND, NO_CARDS, "--device /dev/kfd --device /dev/dri"),
    ("devices", Level.RED, BLIND, ORDER, "--group-add video --group-add render"),
    ("devices", Level.RED, BLIND, HIDDEN, "unset CUDA_VISIBLE_DEVICES and HIP_VISIBLE_DEVICES"),
    ("devices", Level.RED, {**BLIND, "build": Build.CUDA}, NO_CARDS, "--gpus all"),
    ("device 1", Level.RED, cards(arch="gfx803"), ORDER, "gfx90a, gfx942, gfx1030"),
    ("device 1", Level.YELLOW, cards(free=10 * GIB), ORDER, "rocm-smi --showpids"),
    ("device 1", Level.YELLOW, cards(arch="gfx1030"), ORDER, "self-tests"),
    ("Triton", Level.RED, {"triton": None}, ORDER, "pip install triton"),
    ("RCCL", Level.RED, {"collectives": None}, ORDER, "one card"),
]


def found(torch: Torch, order: Order) -> dict[str, Finding]:
    """The findings by their subjects."""
    return {finding.subject: finding for finding in check(torch, order)}


@pytest.mark.parametrize("torch", [ROCM, dataclasses.replace(ROCM, cards=(CARD,), collectives=None, aiter=None)])
def test_a_good_torch_is_green(torch: Torch) -> None:
    """One card or several, with AITER or without; a line for each card, and RCCL only for several."""
    findings = found(torch, ORDER)
    assert {finding.level for finding in findings.values()} == {Level.GREEN}
    assert [name for name in findings if name.startswith("device ")] == [f"device {i}" for i in range(len(torch.cards))]
    assert ("RCCL" in findings) == (len(torch.cards) > 1)


@pytest.mark.parametrize(
    "torch", [CPU, dataclasses.replace(ROCM, build=Build.CUDA, cards=(dataclasses.replace(CARD, arch="sm_90"),))]
)
def test_machines_without_amd_cards(torch: Torch) -> None:
    """A torch for the CPU serves on the CPU and one for CUDA on its cards: nothing is missing."""
    assert {finding.level for finding in check(torch, NO_CARDS)} == {Level.GREEN}


def test_a_torch_for_the_cpu_leaves_cards_idle() -> None:
    """That works, and says how the cards could be used."""
    finding = found(CPU, ORDER)["torch"]
    assert finding.level == Level.YELLOW
    assert "TORCH_INDEX_URL" in finding.advice


@pytest.mark.parametrize("subject, level, changes, order, advice", FLAWS)
def test_flaws(subject: str, level: Level, changes: dict[str, Any], order: Order, advice: str) -> None:
    """Each flaw has its level, says what to do, and is the only one that is told."""
    findings = found(dataclasses.replace(ROCM, **changes), order)
    assert [name for name, finding in findings.items() if finding.level != Level.GREEN][:1] == [subject]
    assert findings[subject].level == level
    assert advice in findings[subject].advice


def test_why_there_is_no_device() -> None:
    """torch's own words are passed on."""
    assert "No HIP GPUs are available" in found(dataclasses.replace(ROCM, **BLIND), ORDER)["devices"].found


@pytest.mark.parametrize("version", ["2.8.0", "2.10.0+rocm7.1", "3.0.0a0+git1234", "2.8.0rc1"])
def test_versions(version: str) -> None:
    """Versions are compared as numbers, whatever hangs on them."""
    assert found(dataclasses.replace(ROCM, version=version), ORDER)["torch"].level == Level.GREEN


@pytest.mark.parametrize(
    "torch, backend",
    [
        (ROCM, "rocm"),
        (CPU, "cpu"),
        (dataclasses.replace(ROCM, triton=None), "cpu"),
        (dataclasses.replace(ROCM, **BLIND), "cpu"),
    ],
)
def test_where_a_server_computes(torch: Torch, backend: str) -> None:
    """On the cards where all that they need is there, else on the CPU."""
    assert found(torch, ORDER)["backend"].found.startswith(f"{backend},")


def test_this_torch() -> None:
    """Whatever it is, looking at it works, and it was told its threads."""
    assert look(get_num_threads()).threads == get_num_threads()
