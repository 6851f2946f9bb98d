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
    if kernels is not None:
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
    for flag, needed in (
        ("--quantization " + config.quantization, config.quantization in ("int8", "int4")),
        ("--batch-invariant", config.batch_invariant),
    ):
        if needed:
            raise ConfigError(f"{flag} needs the C kernels, which are not used: {_why_none(dtype)}")
    with torch.inference_mode():
        model = Llama(checkpoint.config, weights, sizes.max_model_len, threads)
        cache = KvCache(checkpoint.config, sizes.num_blocks, config.block_size, dtype)
    torch.set_num_threads(threads)  # after loading, whose threads have set this to one
    return TorchCompute(model, cache, CpuAttention)


def _why_none(dtype: torch.dtype) -> str:
    return "the log says why" if dtype == torch.bfloat16 else "they compute in bfloat16 only"


def _kernels(config: Config, checkpoint: Checkpoint, dtype: torch.dtype) -> Library | None:
    """The C kernels, if they compute this model in this dtype; the log says why not."""
    if config.kernel_folder is None or dtype != torch.bfloat16:
        return None
    reason = obstacle(checkpoint.config, config.block_size)
    if reason is None:
        try:
            return Library(built_library(Path(config.kernel_folder)))
        except ResourceError as error:
            reason = str(error)
    log.warning("the model runs on torch's operators, which is slower: %s", reason)
    return None
