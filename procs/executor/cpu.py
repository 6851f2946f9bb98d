"""A model on the CPU: with the C kernels where they can be had and fit, else with torch's operators."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import torch

from ...common.config import Config
from ...common.errors import ConfigError, ResourceError
from .attention.cpu import CpuAttention
from .compute import Compute, TorchCompute
from .dtypes import torch_dtype
from .kv_cache import KvCache
from .models.llama import Llama
from .native.build import built_library
from .native.compute import NativeCompute, obstacle
from .native.library import Library
from .sizing import Sizes
from .weights.checkpoint import Checkpoint
from .weights.source import Weights

log = logging.getLogger("fourstroke")


def load_compute(
    config: Config, checkpoint: Checkpoint, sizes: Sizes, threads: int, progress: Callable[[float], None]
) -> Compute:
    """Load the model. Raises ModelError, ResourceError, or ConfigError for what only the kernels can do."""
    dtype = torch_dtype(config.dtype)
    weights = Weights(checkpoint, dtype, progress)
    kernels = _kernels(config, checkpoint, dtype)
    if isinstance(kernels, Library):
        torch.set_num_threads(1)  # what is left to torch is small, and a second team would fight for the cores
        return NativeCompute(
            kernels,
            checkpoint.config,
            weights,
            num_blocks=sizes.num_blocks,
            block_size=config.block_size,
            max_positions=sizes.max_model_len,
            threads=threads,
            quantization=config.quantization,
        )
    _refuse_without_kernels(config, kernels)
    # Who asks for another type knows that it is slower; who meant to have the kernels should see that they are missing.
    level = logging.WARNING if dtype == torch.bfloat16 else logging.INFO
    log.log(level, "the model runs on torch's operators, which is slower than the C kernels: %s", kernels)
    with torch.inference_mode():
        model = Llama(checkpoint.config, weights, sizes.max_model_len, threads)
        cache = KvCache(checkpoint.config, sizes.num_blocks, config.block_size, dtype)
    torch.set_num_threads(threads)  # after loading, whose threads have set this to one
    return TorchCompute(model, cache, CpuAttention)


def _refuse_without_kernels(config: Config, reason: str) -> None:
    """Raise ConfigError for what only the kernels can do, and say why they are not used."""
    for flag, needed in (
        ("--quantization " + config.quantization, config.quantization in ("int8", "int4")),
        ("--batch-invariant", config.batch_invariant),
    ):
        if needed:
            raise ConfigError(f"{flag} needs the C kernels, which are not used: {reason}")


def _kernels(config: Config, checkpoint: Checkpoint, dtype: torch.dtype) -> Library | str:
    """The C kernels, or why they do not compute this model here."""
    if dtype != torch.bfloat16:
        return "they compute in bfloat16 only"
    if config.kernel_folder is None:
        return "there is no folder to keep them in"
    reason = obstacle(checkpoint.config, config.block_size)
    if reason is not None:
        return reason
    try:
        return Library(built_library(Path(config.kernel_folder)))
    except ResourceError as error:
        return str(error)
