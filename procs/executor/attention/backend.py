"""What attention must do in a step, and what a backend is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch

from ..kv_cache import KvCache, LayerCache


@dataclass(frozen=True, slots=True)
class Spans:
    """The rows of a step as attention sees them; decode rows come first, the shorter before the longer.

    Row i has the tokens first[i] .. first[i] + count[i] - 1 of the flat batch, which are the last count[i]
    of its length[i] tokens; all of those are in the cache, in the blocks that tables[i] names in order.
    """

    first: npt.NDArray[np.int64]
    count: npt.NDArray[np.int64]
    length: npt.NDArray[np.int64]
    tables: npt.NDArray[np.int32]
    block_size: int

    @property
    def decodes(self) -> int:
        """How many of the rows have one token."""
        return int(np.count_nonzero(self.count == 1))

    def blocks(self, row: int) -> torch.Tensor:
        """The blocks of a row's tokens, int64."""
        used = -(-int(self.length[row]) // self.block_size)
        return torch.from_numpy(self.tables[row, :used].astype(np.int64))


class Attention(Protocol):
    """Attention of one step: made once from its spans, used by every layer."""

    def attend(self, queries: torch.Tensor, cache: LayerCache) -> torch.Tensor:
        """Causal attention of queries [tokens, heads, head_dim] to the rows' cached tokens; the same shape, contiguous.

        Query head h uses key head h // (heads / kv_heads); scores are scaled by 1 / sqrt(head_dim).
        """
        ...


class Backend(Protocol):
    """Makes the attention of a step over a cache."""

    def __call__(self, spans: Spans, cache: KvCache, /) -> Attention: ...
