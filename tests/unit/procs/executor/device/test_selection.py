"""Where a model runs, from what is asked for and what is there."""

import pytest

from fourstroke.common.config import Config
from fourstroke.common.errors import ConfigError
from fourstroke.procs.executor.device.selection import TorchBuild, choose_backend, refuse_for_cpu

CPU = TorchBuild("cpu", 0, True)
ROCM = TorchBuild("rocm", 2, True)
CUDA = TorchBuild("cuda", 1, True)


def config(**changes: object) -> Config:
    return Config(model="m", served_model_names=("m",), **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "build, backend",
    [
        (CPU, "cpu"),
        (ROCM, "rocm"),
        (CUDA, "cuda"),
        (TorchBuild("rocm", 0, True), "cpu"),
        (TorchBuild("cuda", 1, False), "cpu"),
    ],
    ids=str,
)
def test_auto(build: TorchBuild, backend: str) -> None:
    """A device that is visible is used, by the build that is installed; else the CPU."""
    assert choose_backend(config(), build) == backend


@pytest.mark.parametrize("build", [CPU, ROCM, CUDA], ids=str)
def test_the_cpu_is_always_there(build: TorchBuild) -> None:
    """It can be asked for on a machine with GPUs."""
    assert choose_backend(config(backend="cpu"), build) == "cpu"


@pytest.mark.parametrize(
    "changes, build, words",
    [
        ({"backend": "rocm"}, CUDA, "PyTorch for rocm; the one that is installed is for cuda"),
        ({"backend": "cuda"}, CPU, "PyTorch for cuda; the one that is installed is for cpu"),
        ({"backend": "rocm"}, TorchBuild("rocm", 0, True), "sees no GPU$"),
        ({"backend": "rocm", "visible_devices": ()}, TorchBuild("rocm", 0, True), "the environment hides them all"),
        ({"backend": "rocm", "visible_devices": ("7",)}, TorchBuild("rocm", 0, True), "the environment allows 7"),
        ({"backend": "cuda"}, TorchBuild("cuda", 1, False), "needs the package triton"),
        ({"data_parallel_size": 3}, ROCM, "--data-parallel-size 3 is above the 2 visible GPUs"),
        ({"num_speculative_tokens": 1}, ROCM, "--num-speculative-tokens is not there"),
    ],
    ids=str,
)
def test_refused_in_words(changes: dict[str, object], build: TorchBuild, words: str) -> None:
    """What cannot be is refused with the flag and the reason."""
    with pytest.raises(ConfigError, match=words):
        choose_backend(config(**changes), build)


@pytest.mark.parametrize("changes", [{"quantization": "fp8"}, {"kv_cache_dtype": "fp8"}], ids=str)
def test_flags_of_gpus(changes: dict[str, object]) -> None:
    """On a CPU they are refused, not ignored."""
    with pytest.raises(ConfigError, match="fp8 needs a GPU"):
        refuse_for_cpu(config(**changes))
