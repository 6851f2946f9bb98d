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
    kernels = _kernels(config, checkpoint, dtype)
    if isinstance(kernels, Library):
        return kernels
    _refuse_without_kernels(config, kernels)
    # Who asks for another type knows that it is slower; who meant to have the kernels should see that they are missing.
    level = logging.WARNING if dtype == torch.bfloat16 else logging.INFO
    log.log(level, "the model runs on torch's operators, which is slower than the C kernels: %s", kernels)
    return None


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
        kernels, lacking = load_kernels(Path(config.kernel_folder))
    except ResourceError as error:
        return str(error)
    if lacking is not None:
        log.warning("the model runs on vectors alone, prompts take longer: %s", lacking)
    return kernels


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
