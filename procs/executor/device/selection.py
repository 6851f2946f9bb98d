"""Where a model runs: what --backend auto means on this machine, and flags that a backend cannot keep.

Pure but for `torch_build`, which looks. Which devices are visible was said by the launcher's environment
(common/devices.py); engine i of several has the i-th of them.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass

import torch

from ....common.config import Config
from ....common.errors import ConfigError


@dataclass(frozen=True, slots=True)
class TorchBuild:
    """What PyTorch was built for: "rocm", "cuda" or "cpu"; how many devices it sees; whether Triton is there."""

    platform: str
    devices: int
    triton: bool


def torch_build() -> TorchBuild:
    """What is installed and visible here."""
    platform = "rocm" if torch.version.hip else "cuda" if torch.version.cuda else "cpu"
    return TorchBuild(platform, torch.cuda.device_count(), importlib.util.find_spec("triton") is not None)


def choose_backend(config: Config, build: TorchBuild) -> str:
    """Cpu, rocm or cuda: what is asked for, or with "auto" what is there. Raises ConfigError for what cannot be."""
    asked = config.backend
    if asked == "auto":
        asked = build.platform if build.devices and build.triton else "cpu"
    if asked == "cpu":
        return asked
    if asked != build.platform:
        raise ConfigError(
            f"--backend {asked} needs PyTorch for {asked}; the one that is installed is for {build.platform}"
        )
    if not build.devices:
        raise ConfigError(f"--backend {asked}: PyTorch sees no GPU{_why(config)}")
    if not build.triton:
        raise ConfigError(f"--backend {asked} needs the package triton, which is not installed")
    if config.data_parallel_size > build.devices:
        raise ConfigError(f"--data-parallel-size {config.data_parallel_size} is above the {build.devices} visible GPUs")
    if config.num_speculative_tokens:
        raise ConfigError(f"--num-speculative-tokens is not there with --backend {asked} yet")
    return asked


def _why(config: Config) -> str:
    """What the environment has to do with it."""
    allowed = config.visible_devices
    if allowed is None:
        return ""
    return f"; the environment allows {', '.join(allowed)}" if allowed else "; the environment hides them all"


def refuse_for_cpu(config: Config) -> None:
    """Raise ConfigError for flags that only a GPU keeps."""
    if config.quantization == "fp8":
        raise ConfigError("--quantization fp8 needs a GPU")
    if config.kv_cache_dtype != "auto":
        raise ConfigError(f"--kv-cache-dtype {config.kv_cache_dtype} needs a GPU")
