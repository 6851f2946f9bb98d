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
from .native import forms
from .native.compute import NativeCompute, obstacle
from .native.library import Library
from .native.load import load_kernels
from .sizing import Sizes
from .weights.checkpoint import Checkpoint, weight_bytes
from .weights.source import Weights

log = logging.getLogger("fourstroke")


def choose_kernels(config: Config, checkpoint: Checkpoint) -> Library | None:
    """The C kernels, if they compute this model in this dtype; the log says why not.

    Raises ConfigError for what only they can do.
    """
    dtype = torch_dtype(config.dtype)
    kernels = None
    if config.kernel_folder is not None and dtype == torch.bfloat16:
        kernels = _kernels(Path(config.kernel_folder), config.block_size, checkpoint)
    why_none = "the log says why" if dtype == torch.bfloat16 else "they compute in bfloat16 only"
    for flag, needed in (
        ("--quantization " + config.quantization, config.quantization in ("int8", "int4")),
        ("--batch-invariant", config.batch_invariant),
    ):
        if needed and kernels is None:
            raise ConfigError(f"{flag} needs the C kernels, which are not used: {why_none}")
    return kernels


def _kernels(folder: Path, block_size: int, checkpoint: Checkpoint) -> Library | None:
    reason = obstacle(checkpoint.config, block_size)
    if reason is None:
        try:
            kernels, lacking = load_kernels(folder)
        except ResourceError as error:
            reason = str(error)
        else:
            if lacking is not None:
                log.warning("the model runs on vectors alone, prompts take longer: %s", lacking)
            return kernels
    log.warning("the model runs on torch's operators, which is slower: %s", reason)
    return None


def loaded_bytes(config: Config, checkpoint: Checkpoint, kernels: Library | None) -> int:
    """The memory that the weights will take."""
    if kernels is None:
        return weight_bytes(checkpoint, torch_dtype(config.dtype).itemsize)
    return forms.weight_bytes(kernels, checkpoint, config.quantization)


def load_compute(
    config: Config,
    checkpoint: Checkpoint,
    kernels: Library | None,
    sizes: Sizes,
    threads: int,
    progress: Callable[[float], None],
) -> Compute:
    """Load the model, to be computed by the kernels if there are any. Raises ModelError or ResourceError."""
    dtype = torch_dtype(config.dtype)
    weights = Weights(checkpoint, dtype, progress)
    if kernels is not None:
        if widened := forms.widened(checkpoint, config.quantization):
            log.info("%d products are in bfloat16, since only parts of them are stored in blocks", widened)
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
    with torch.inference_mode():
        model = Llama(checkpoint.config, weights, sizes.max_model_len, threads)
        cache = KvCache(checkpoint.config, sizes.num_blocks, config.block_size, dtype)
    torch.set_num_threads(threads)  # after loading, whose threads have set this to one
    return TorchCompute(model, cache, CpuAttention)
