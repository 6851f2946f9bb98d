"""The kernels, built once a session: those of this machine, and what other processors get."""

from __future__ import annotations

from pathlib import Path

import pytest

from fourstroke.common.errors import ResourceError
from fourstroke.procs.executor.native.build import WITHOUT_AMX, built_library
from fourstroke.procs.executor.native.library import Library

VARIANTS = {"this processor": (), "no matrix unit": WITHOUT_AMX, "AVX2": ("-march=x86-64-v3",)}
"""Flags for the compiler that give the portable forms of the kernels."""

_NEEDED = {"AVX2": {"avx2", "fma", "f16c", "bmi2"}}
"""Features of the processor that a variant uses."""


def _features() -> set[str]:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return set(next((line for line in lines if line.startswith("flags")), "").split())


@pytest.fixture(scope="session")
def kernel_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache for what is built in this session."""
    return tmp_path_factory.mktemp("kernels")


def _load(folder: Path, variant: str) -> Library:
    if not _NEEDED.get(variant, set()) <= _features():
        pytest.skip(f"this processor has no {variant}")
    try:
        return Library(built_library(folder, VARIANTS[variant]))
    except ResourceError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def kernels(kernel_folder: Path) -> Library:
    """As a server here has them."""
    return _load(kernel_folder, "this processor")


@pytest.fixture(scope="session", params=VARIANTS)
def any_kernels(request: pytest.FixtureRequest, kernel_folder: Path) -> Library:
    """Each variant in turn."""
    return _load(kernel_folder, request.param)
