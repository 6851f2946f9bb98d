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
    "changes, head_dim, reason",
    [
        ({"kernel_folder": None}, 64, None),
        ({"dtype": "float32"}, 64, None),
        ({"block_size": 8}, 64, "a block size of 8"),
        ({}, 32, "a head size of 32"),
    ],
)
def test_torch_elsewhere(
    folder: str, caplog: pytest.LogCaptureFixture, changes: dict[str, object], head_dim: int, reason: str | None
) -> None:
    """The log says why, unless nobody asked for them; what only they can do is refused, and the flag named."""
    changes, config = {"kernel_folder": folder} | changes, model_config(2, 1, head_dim)
    with caplog.at_level(logging.INFO, "fourstroke"):
        assert isinstance(load(changes, config), TorchCompute)
    assert len(caplog.messages) == (reason is not None)
    assert reason is None or reason in caplog.text
    for flag, more in (
        ("--quantization int8", {"quantization": "int8"}),
        ("--quantization int4", {"quantization": "int4"}),
        ("--batch-invariant", {"batch_invariant": True}),
    ):
        with pytest.raises(ConfigError, match=flag):
            load(changes | more, config)


def test_torch_where_nothing_can_be_built(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """What the builder says is the reason, and the model runs all the same."""

    def fails(_folder: Path) -> None:
        raise ResourceError("there is no C compiler (cc, gcc, clang)")

    monkeypatch.setattr(cpu, "load_kernels", fails)
    assert isinstance(load({"kernel_folder": "anywhere"}), TorchCompute)
    assert "no C compiler" in caplog.text
