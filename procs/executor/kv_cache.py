"""The paged KV cache: for each layer keys and values [num_blocks, block_size, kv_heads, head_dim].

A slot is the place of one token: block * block_size + offset. Which request a block belongs to is not
known here; the scheduler decides that and block tables say it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

from .models.config import ModelConfig


@dataclass(frozen=True, slots=True)
class LayerCache:
    """Keys and values of one layer. In a cache of 8-bit floats what is stored is the number over its scale."""

    keys: torch.Tensor
    values: torch.Tensor
    key_scale: float = 1.0
    value_scale: float = 1.0

    def write(self, slots: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Put the keys and values [tokens, kv_heads, head_dim] of a step into their slots (int64 [tokens])."""
        self.keys.flatten(0, 1).index_copy_(0, slots, keys)
        self.values.flatten(0, 1).index_copy_(0, slots, values)


class KvCache:
    """The cache of all layers. The machine's memory is taken when a block is first written, not before."""

    def __init__(
        self,
        model: ModelConfig,
        num_blocks: int,
        block_size: int,
        dtype: torch.dtype,
        device: torch.device | None = None,
    ) -> None:
        """Without a `device` it lies in the machine's memory."""
        self.block_size = block_size
        shape = (model.layers, 2, num_blocks, block_size, model.kv_heads, model.head_dim)
        size = math.prod(shape) * dtype.itemsize
        if device is None:
            # numpy's zeros are the kernel's untouched pages; torch's are written by hand, seconds for some GiB.
            memory = torch.from_numpy(np.zeros(size, np.uint8))
        else:
            memory = torch.zeros(size, dtype=torch.uint8, device=device)
        self._all = memory.view(dtype).view(shape)
        self.layers = tuple(LayerCache(keys, values) for keys, values in self._all)

    def clear(self, blocks: torch.Tensor) -> None:
        """Zero blocks (int64) of all layers, so that no NaN of an earlier owner lies behind a new owner's tokens.

        Padded attention multiplies what lies there by a weight of zero, and zero times NaN is NaN.
        """
        self._all.index_fill_(2, blocks, 0)
