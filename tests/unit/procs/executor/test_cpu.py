"""The CPU backend: the C kernels where they can be had and fit, else torch, with the reason in the log."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch

from fourstroke.common.errors import ConfigError, ResourceError
from fourstroke.procs.executor import cpu
from fourstroke.procs.executor.compute import Compute, TorchCompute
from fourstroke.procs.executor.cpu import choose_kernels, load_compute
from fourstroke.procs.executor.native.build import find_compiler
from fourstroke.procs.executor.native.compute import NativeCompute
from fourstroke.procs.executor.sizing import Sizes

from .driver import executor_config
from .native.random_model import RandomCheckpoint, model_config

FITTING = model_config(2, 1)


@pytest.fixture(autouse=True)
def threads_as_before() -> object:
    """Loading sets how many threads torch has."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def load(changes: dict[str, object], config: object = FITTING) -> Compute:
    plain = {"dtype": "bfloat16", "kernel_folder": None}
    checkpoint, whole = RandomCheckpoint(config), executor_config(Path("m"), **(plain | changes))  # type: ignore[arg-type]
    return load_compute(whole, checkpoint, choose_kernels(whole, checkpoint), Sizes(8, 64), 1, lambda _: None)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Where kernels are built."""
    return str(tmp_path_factory.mktemp("kernels"))


def test_the_kernels_where_they_fit(folder: str, caplog: pytest.LogCaptureFixture) -> None:
    """With bfloat16 and a compiler; then nothing is said."""
    if find_compiler() is None:
        pytest.skip("there is no C compiler")
    assert isinstance(load({"kernel_folder": folder, "batch_invariant": True}), NativeCompute)
    assert caplog.messages == []


@pytest.mark.parametrize(
    "changes, head_dim, reason, level",
    [
        ({"kernel_folder": None}, 64, "no folder to keep them in", logging.WARNING),
        ({"dtype": "float32"}, 64, "in bfloat16 only", logging.INFO),
        ({"dtype": "float16"}, 64, "in bfloat16 only", logging.INFO),
        ({"block_size": 8}, 64, "a block size of 8", logging.WARNING),
        ({}, 32, "a head size of 32", logging.WARNING),
    ],
)
def test_torch_elsewhere(
    folder: str, caplog: pytest.LogCaptureFixture, changes: dict[str, object], head_dim: int, reason: str, level: int
) -> None:
    """The log says why: as a warning, unless another type was asked for."""
    with caplog.at_level(logging.INFO, "fourstroke"):
        loaded = load({"kernel_folder": folder} | changes, model_config(2, 1, head_dim))
    assert isinstance(loaded, TorchCompute)
    assert [(record.levelno, reason in record.message) for record in caplog.records] == [(level, True)]


ONLY_KERNELS = [
    ("--quantization int8", {"quantization": "int8"}),
    ("--quantization int4", {"quantization": "int4"}),
    ("--batch-invariant", {"batch_invariant": True}),
]


def no_compiler(_folder: Path) -> Path:
    raise ResourceError("there is no C compiler (cc, gcc, clang)")


@pytest.mark.parametrize("flag, needed", ONLY_KERNELS)
@pytest.mark.parametrize(
    "changes, reason",
    [
        ({}, "there is no C compiler"),
        ({"dtype": "float32"}, "they compute in bfloat16 only"),
        ({"block_size": 8}, "a block size of 8"),
        ({"kernel_folder": None}, "no folder to keep them in"),
    ],
)
def test_what_torch_cannot_keep_is_refused(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, object], reason: str, flag: str, needed: dict[str, object]
) -> None:
    """The flag is named, and what keeps the kernels away."""
    monkeypatch.setattr(cpu, "load_kernels", no_compiler)
    with pytest.raises(ConfigError, match=f"{flag} needs the C kernels, which are not used: .*{reason}"):
        load({"kernel_folder": "anywhere"} | changes | needed)


def test_torch_where_nothing_can_be_built(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """What the builder says is the reason, and the model runs all the same."""
    monkeypatch.setattr(cpu, "load_kernels", no_compiler)
    assert isinstance(load({"kernel_folder": "anywhere"}), TorchCompute)
    assert "no C compiler" in caplog.text
