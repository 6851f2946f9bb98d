"""How large the KV cache on a device can be: arithmetic on what was measured.

The largest step is run once with a cache of one block; then it is known what torch takes at most, weights and
scratch, and what libraries and the driver have taken beside it. Graphs keep their scratch for ever, so that of the
largest decode step counts once more. A share of what is left is the cache's.
"""

from __future__ import annotations

from dataclasses import dataclass

from ....common.config import Config
from ....common.errors import ResourceError
from ..models.config import ModelConfig
from ..sizing import Sizes, fitting_length, wanted_length
from .card import MemoryUse

_MEMORY_FRACTION = 0.9
"""Without --memory-fraction: the rest is for what was not measured, as fragmentation."""


@dataclass(frozen=True, slots=True)
class Measured:
    """After the largest step: the card's memory, and the scratch of the largest decode step, bytes."""

    use: MemoryUse
    graph_bytes: int

    @property
    def left(self) -> int:
        """What a cache may take."""
        return self.use.total - self.use.of_others - self.use.peak_of_torch - self.graph_bytes


def size_device_cache(config: Config, model: ModelConfig, block_bytes: int, measured: Measured) -> Sizes:
    """Choose the number of blocks and the longest request. Raises ConfigError or ResourceError as sizing.size_cache."""
    wanted = wanted_length(config, model)
    share = int((config.memory_fraction or _MEMORY_FRACTION) * max(0, measured.left))
    num_blocks = config.num_blocks
    if num_blocks is None:
        num_blocks = min(config.max_num_seqs * -(-wanted // config.block_size), share // block_bytes)
    if num_blocks < 1 or num_blocks * block_bytes > measured.left:
        raise ResourceError(
            f"the KV cache needs {_gib(max(1, num_blocks) * block_bytes)} of the device's memory, but beside the model "
            f"and the scratch of a step {_gib(max(0, measured.left))} of {_gib(measured.use.total)} are left"
        )
    return Sizes(num_blocks, fitting_length(config, wanted, num_blocks * config.block_size))


def _gib(size: int) -> str:
    return f"{size / 2**30:,.2f} GiB"
