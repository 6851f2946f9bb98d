"""A paged cache for the tests of attention, and attention as the textbook writes it."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import torch

NOWHERE = 10**9
"""An entry of a block table that is not in use: whoever reads there crashes."""


@dataclass(frozen=True, slots=True)
class Paged:
    """Rows of tokens in a cache whose other places are all NaN; `lengths` and `tables` as the kernels take them."""

    keys: torch.Tensor
    values: torch.Tensor
    tables: torch.Tensor
    lengths: torch.Tensor

    def row(self, row: int, scale: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values [length, kv_heads, head_dim] of a row in float32, times the scale of the cache."""
        length, block_size = int(self.lengths[row]), self.keys.shape[1]
        blocks = self.tables[row, : -(-length // block_size)].long()
        keys, values = (cache[blocks].float().flatten(0, 1)[:length] * scale for cache in (self.keys, self.values))
        return keys, values

    def without_before(self, row: int, token: int) -> Paged:
        """The same without the blocks that hold only tokens before `token` of a row: NaN, and no entry in the table."""
        keys, values, tables = self.keys.clone(), self.values.clone(), self.tables.clone()
        freed = tables[row, : token // keys.shape[1]].long()
        keys[freed], values[freed] = float("nan"), float("nan")
        tables[row, : len(freed)] = NOWHERE
        return Paged(keys, values, tables, self.lengths)

    def zeroed(self) -> Paged:
        """The same with zeros where it has NaN."""
        clean = (torch.where(cache.isnan(), torch.zeros_like(cache), cache) for cache in (self.keys, self.values))
        return Paged(*clean, self.tables, self.lengths)


def paged(
    lengths: list[int], kv_heads: int, head_dim: int, block_size: int, dtype: torch.dtype, spare: int = 2
) -> Paged:
    """Random keys and values for rows of these lengths, in blocks of random order; tables have `spare` more entries."""
    generator = torch.Generator().manual_seed(sum(lengths) + head_dim)
    counts = [-(-length // block_size) for length in lengths]
    order = iter((1 + torch.randperm(sum(counts), generator=generator)).tolist())  # block 0 is nobody's
    tables = torch.full((len(lengths), max(counts) + spare), NOWHERE, dtype=torch.int32)
    shape = (2, sum(counts) + 1, block_size, kv_heads, head_dim)
    cache = torch.full(shape, float("nan")).to(dtype)
    for row, length in enumerate(lengths):
        blocks = list(itertools.islice(order, counts[row]))
        tables[row, : counts[row]] = torch.tensor(blocks)
        for token in range(length):
            content = torch.randn((2, kv_heads, head_dim), generator=generator)
            cache[:, blocks[token // block_size], token % block_size] = content.to(dtype)
    return Paged(cache[0], cache[1], tables, torch.tensor(lengths, dtype=torch.int32))


def attention(queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, window: int = 0) -> torch.Tensor:
    """Causal attention in float32 of the last tokens, `queries` [count, heads, head_dim]; scale 1 / sqrt(head_dim)."""
    count, heads, head_dim = queries.shape
    length, kv_heads, _ = keys.shape
    keys, values = (cache.repeat_interleave(heads // kv_heads, dim=1) for cache in (keys, values))
    scores = torch.einsum("qhd,khd->hqk", queries.float(), keys) / head_dim**0.5
    back = torch.arange(length - count, length)[:, None] - torch.arange(length)
    hidden = (back < 0) | (back >= window) if window else back < 0
    return torch.einsum("hqk,khd->qhd", scores.masked_fill(hidden, float("-inf")).softmax(-1), values)


def random_queries(tokens: int, heads: int, head_dim: int, dtype: torch.dtype) -> torch.Tensor:
    """Queries [tokens, heads, head_dim]."""
    generator = torch.Generator().manual_seed(tokens * heads)
    return torch.randn((tokens, heads, head_dim), generator=generator).to(dtype)


def allowed_error(dtype: torch.dtype) -> float:
    """How far a result may be from float32's: weights and results are rounded to the type once each."""
    return {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}[dtype]
