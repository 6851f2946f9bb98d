"""Each line that the doctor says of a machine, with facts that no machine here has."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fourstroke.common.finding import Finding, Level
from fourstroke.launch.doctor.checks import CHECKS, check
from fourstroke.launch.doctor.machine import Machine, ModelCache, Node

GIB, MIB = 1 << 30, 1 << 20
CACHE = ModelCache(folder=Path("/home/me/.cache/fourstroke/models"), stored=True, writable=True, free=GIB)
GOOD = Machine(
    version="1.2.3",
    python="3.11.9",
    system="Linux",
    release="6.1",
    architecture="x86_64",
    processor="A Processor",
    features=frozenset({"avx2", "avx512f", "avx512_bf16"}),
    cores=8,
    cores_online=64,
    memory=16 * GIB,
    shm=8 * GIB,
    shm_free=7 * GIB,
    shm_needed=13 * MIB,
    open_files=20_000,
    models=CACHE,
    cards=2,
    kfd=Node.OPEN,
    render=Node.OPEN,
    rocm="6.4.1",
    variables={},
)
"""A machine that leaves nothing to wish for."""

NOT_STORED = dataclasses.replace(CACHE, stored=False)
BOTH = {"HIP_VISIBLE_DEVICES": "0", "ROCR_VISIBLE_DEVICES": "1", "CUDA_VISIBLE_DEVICES": "0"}

FLAWS: list[tuple[str, Level, dict[str, Any], str]] = [
    ("system", Level.RED, {"system": "Darwin"}, "on Linux"),
    ("system", Level.YELLOW, {"architecture": "aarch64"}, "x86_64"),
    ("processor", Level.YELLOW, {"features": frozenset({"avx2"})}, "--dtype float32"),
    ("cores", Level.YELLOW, {"cores": 1}, "--cpus"),
    ("memory", Level.RED, {"memory": GIB - 1}, "--memory"),
    ("shared memory", Level.RED, {"shm_free": 12 * MIB}, "--shm-size"),
    ("shared memory", Level.RED, {"shm": 64 * MIB, "shm_free": MIB, "cards": 0}, "--shm-size"),
    ("shared memory", Level.YELLOW, {"shm": 64 * MIB, "shm_free": 64 * MIB, "cards": 1}, "--shm-size 1g"),
    ("shared memory", Level.YELLOW, {"shm": 512 * MIB, "shm_free": 512 * MIB}, "--shm-size 8g"),
    ("open files", Level.RED, {"open_files": 255}, "ulimit -Hn"),
    ("open files", Level.YELLOW, {"open_files": 1024}, "ulimit -Hn"),
    ("model cache", Level.RED, {"models": dataclasses.replace(NOT_STORED, writable=False)}, "XDG_CACHE_HOME"),
    ("model cache", Level.RED, {"models": dataclasses.replace(NOT_STORED, free=MIB)}, "XDG_CACHE_HOME"),
    ("AMD driver", Level.YELLOW, {"kfd": Node.ABSENT}, "--device /dev/kfd --device /dev/dri"),
    ("AMD driver", Level.RED, {"render": Node.ABSENT}, "--device /dev/kfd --device /dev/dri"),
    ("AMD driver", Level.RED, {"kfd": Node.CLOSED}, "video,render"),
    ("AMD driver", Level.RED, {"render": Node.CLOSED}, "--group-add render"),
    ("visibility", Level.RED, {"variables": BOTH}, "unset ROCR_VISIBLE_DEVICES and CUDA_VISIBLE_DEVICES"),
    ("visibility", Level.YELLOW, {"variables": {"HIP_VISIBLE_DEVICES": ""}}, "unset HIP_VISIBLE_DEVICES"),
]


def flawed(**changes: Any) -> dict[str, Finding]:
    """The findings about a good machine that has been changed, by their subjects."""
    return {finding.subject: finding for finding in check(dataclasses.replace(GOOD, **changes))}


def test_a_good_machine_is_green() -> None:
    """Where nothing is wrong nothing is said to be, and each line has a subject of its own."""
    findings = check(GOOD)
    assert {finding.level for finding in findings} == {Level.GREEN}
    assert len({finding.subject for finding in findings}) == len(CHECKS)


@pytest.mark.parametrize("subject, level, changes, advice", FLAWS)
def test_flaws(subject: str, level: Level, changes: dict[str, Any], advice: str) -> None:
    """Each flaw has its level and says what to do about it."""
    finding = flawed(**changes)[subject]
    assert finding.level == level
    assert advice in finding.advice


@pytest.mark.parametrize("subject, level, changes, advice", FLAWS)
def test_a_flaw_is_told_once(subject: str, level: Level, changes: dict[str, Any], advice: str) -> None:
    """One thing that is wrong makes one line that is not green."""
    assert [name for name, finding in flawed(**changes).items() if finding.level != Level.GREEN] == [subject]


@pytest.mark.parametrize(
    "changes",
    [
        {"cards": 0, "kfd": Node.ABSENT, "render": Node.ABSENT, "rocm": None},
        {"cards": 0, "kfd": Node.ABSENT, "variables": {"HIP_VISIBLE_DEVICES": ""}},
        {"open_files": -1},
        {"models": NOT_STORED},
        {"models": dataclasses.replace(CACHE, writable=False, free=0)},
        {"variables": {"HIP_VISIBLE_DEVICES": "0,1", "CUDA_VISIBLE_DEVICES": "0,1"}},
        {"variables": {"ROCR_VISIBLE_DEVICES": "1"}},
        {"shm": 512 * MIB, "shm_free": 512 * MIB, "cards": 1},
    ],
)
def test_no_flaws(changes: dict[str, Any]) -> None:
    """No card, no limit, a model that is stored already, one variable or several that agree: nothing to mend."""
    assert {finding.level for finding in flawed(**changes).values()} == {Level.GREEN}


@given(st.integers(0, 1 << 40), st.integers(0, 1 << 40), st.integers(0, 1 << 40))
def test_more_memory_is_never_worse(less: int, more: int, needed: int) -> None:
    """No size of memory, shared memory or limit of files is a greater flaw than a smaller one."""
    less, more = sorted((less, more))
    order = [Level.RED, Level.YELLOW, Level.GREEN]

    def levels(size: int) -> list[int]:
        findings = flawed(memory=size, shm=size, shm_free=size, shm_needed=needed, open_files=size)
        return [order.index(findings[subject].level) for subject in ("memory", "shared memory", "open files")]

    assert all(worse <= better for worse, better in zip(levels(less), levels(more), strict=True))
