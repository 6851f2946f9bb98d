"""Loading the kernels: without the matrix unit where the system does not permit it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from fourstroke.procs.executor.native import load
from fourstroke.procs.executor.native.build import WITHOUT_AMX, built_library
from fourstroke.procs.executor.native.library import Library
from fourstroke.procs.executor.native.load import load_kernels

from .random_model import RandomCheckpoint, compute_all, model_config, native, texts_of

REFUSES = "#include <unistd.h>\n#define syscall(...) (-1L)\n"


def test_a_system_that_permits_it(kernels: Library, kernel_folder: Path) -> None:
    """One library, and nothing is said."""
    loaded, lacking = load_kernels(kernel_folder)
    assert (loaded.path, lacking) == (kernels.path, None)


def test_a_system_that_refuses_the_matrix_unit(
    kernels: Library, kernel_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model runs on vectors, as it does in a library that was built so, and it is said."""
    header = tmp_path / "refuses.h"
    header.write_text(REFUSES)

    def built(folder: Path, extra: tuple[str, ...] = ()) -> Path:
        return built_library(folder, extra or ("-include", str(header)))

    monkeypatch.setattr(load, "built_library", built)
    loaded, lacking = load_kernels(kernel_folder)
    if lacking is None:
        pytest.skip("this processor has no matrix unit")
    assert "does not let this process use" in lacking
    assert loaded.path == built_library(kernel_folder, WITHOUT_AMX)
    checkpoint, texts = RandomCheckpoint(model_config(2, 1)), texts_of(20)
    ours, theirs = (compute_all(native(which, checkpoint), texts)[0] for which in (loaded, kernels))
    torch.testing.assert_close(ours, theirs, atol=0.05, rtol=0)
