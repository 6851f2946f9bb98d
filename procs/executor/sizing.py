"""How large the KV cache is and how long a request may get: pure arithmetic, before anything is loaded."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from ...common.config import Config
from ...common.errors import ConfigError, ResourceError
from .models.config import ModelConfig

log = logging.getLogger("fourstroke")

_MEMORY_FRACTION = 0.3
"""Without --memory-fraction: the machine has other work, too."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """What the executor can hold."""

    num_blocks: int
    max_model_len: int


def size_cache(config: Config, model: ModelConfig, weight_bytes: int, item_bytes: int, available: int) -> Sizes:
    """Choose the number of blocks and the longest request; `available` is the machine's free memory in bytes.

    Every engine has its share of that, since all size their caches before any has loaded. Raises ConfigError for a flag
    that cannot be kept and ResourceError if memory is short.
    """
    available //= config.data_parallel_size
    wanted = wanted_length(config, model)
    block_bytes = config.block_size * model.kv_bytes_per_token(item_bytes)
    if config.num_blocks is not None:
        num_blocks = config.num_blocks
    else:
        useful = config.max_num_seqs * -(-wanted // config.block_size)
        num_blocks = min(
            useful, int((config.memory_fraction or _MEMORY_FRACTION) * (available - weight_bytes)) // block_bytes
        )
    needed = weight_bytes + max(1, num_blocks) * block_bytes
    if needed > available:
        raise ResourceError(
            f"the weights ({_mib(weight_bytes)}) and the KV cache ({_mib(needed - weight_bytes)}) "
            f"need {_mib(needed)} of memory, but {_mib(available)} are available{_for_each(config)}"
        )
    num_blocks = max(1, num_blocks)
    return Sizes(num_blocks, fitting_length(config, wanted, num_blocks * config.block_size))


def graph_rows(max_rows: int, max_tokens: int, tokens_per_row: int) -> int:
    """The most rows of a step in which every row decodes: the widest batch that a captured graph must hold."""
    return min(max_rows, max_tokens // tokens_per_row)


def wanted_length(config: Config, model: ModelConfig) -> int:
    """The longest request, in tokens, if memory allows. Raises ConfigError if that is above the model's."""
    asked = config.max_model_len
    if asked is not None and asked > model.max_position:
        raise ConfigError(f"--max-model-len {asked} is above the model's {model.max_position} tokens")
    return asked or model.max_position


def fitting_length(config: Config, wanted: int, capacity: int) -> int:
    """The wanted length, or as much of it as the cache's `capacity` in tokens allows. Raises ConfigError if the flag
    asks for more.
    """
    if capacity >= wanted:
        return wanted
    if config.max_model_len is not None:
        raise ConfigError(
            f"--max-model-len {wanted} does not fit into the KV cache of {capacity} tokens: "
            f"lower it, or raise --num-blocks or --memory-fraction"
        )
    log.warning("requests are limited to %d tokens of the model's %d: the KV cache has no more", capacity, wanted)
    return capacity


def _for_each(config: Config) -> str:
    return f" to each of {config.data_parallel_size} engines" if config.data_parallel_size > 1 else ""


def _mib(size: int) -> str:
    return f"{size / 2**20:,.0f} MiB"
