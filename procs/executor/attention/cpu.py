"""Attention on the CPU: decode rows of like length in one call, prefill chunks one by one.

The keys and values of a group's blocks are gathered into scratch memory, which torch's flash attention
reads in place. The scratch is small enough to be still in the processor's cache after gathering, and is
shared by all groups and layers of a step. The query heads of a decode row that share a key head are laid
out as queries of one head, so that the kernel multiplies a small matrix and not a vector several times.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)

from ..kv_cache import KvCache, LayerCache
from .backend import Spans

GROUP_TOKENS = 8192
"""A group of several rows gathers at most so many tokens."""

GROUP_SPREAD = 1.25
"""A group's longest row has at most so many times the blocks of its shortest, and one more."""


class CpuAttention:
    """See backend.Attention."""

    def __init__(self, spans: Spans, cache: KvCache) -> None:
        keys = cache.layers[0].keys
        decodes = spans.decodes
        blocks_of = -(-spans.length // spans.block_size)
        groups = group_rows(blocks_of[:decodes], max(1, GROUP_TOKENS // spans.block_size))
        self._parts: list[_Group | _Chunk] = [_group(spans, rows, blocks_of[rows], keys.dtype) for rows in groups]
        self._parts += [_chunk(spans, row, keys.dtype) for row in range(decodes, len(spans.count))]
        self._scratch = keys.new_empty(2, max(len(part.blocks) for part in self._parts), *keys.shape[1:])

    def attend(self, queries: torch.Tensor, cache: LayerCache) -> torch.Tensor:
        mixed = torch.empty_like(queries, memory_format=torch.contiguous_format)
        for part in self._parts:
            keys, values = self._scratch[:, : len(part.blocks)]
            torch.index_select(cache.keys, 0, part.blocks, out=keys)
            torch.index_select(cache.values, 0, part.blocks, out=values)
            mixed[part.tokens] = part.attend(queries[part.tokens], keys, values)
        return mixed


class _Group(NamedTuple):
    """Decode rows that are attended to together, padded to the longest.

    `mask` [rows, 1, 1, length] is added to the scores: minus infinity behind a row's own tokens.
    """

    tokens: slice
    blocks: torch.Tensor
    mask: torch.Tensor

    def attend(self, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        rows, heads, head_dim = queries.shape
        kv_heads, length = keys.shape[2], self.mask.shape[-1]

        def by_head(gathered: torch.Tensor) -> torch.Tensor:
            return gathered.view(rows, -1, kv_heads, head_dim)[:, :length].transpose(1, 2)

        grouped = queries.view(rows, kv_heads, heads // kv_heads, head_dim)
        mixed = F.scaled_dot_product_attention(grouped, by_head(keys), by_head(values), attn_mask=self.mask)
        return mixed.reshape(rows, heads, head_dim)


class _Chunk(NamedTuple):
    """A row of several tokens. `mask` [tokens, length] hides the future; None where nothing is cached before them."""

    tokens: slice
    length: int
    blocks: torch.Tensor
    mask: torch.Tensor | None

    def attend(self, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        def by_head(tokens: torch.Tensor) -> torch.Tensor:
            return tokens.transpose(0, 1)[None]

        mixed = F.scaled_dot_product_attention(
            by_head(queries),
            by_head(keys.flatten(0, 1)[: self.length]),
            by_head(values.flatten(0, 1)[: self.length]),
            attn_mask=self.mask,
            is_causal=self.mask is None,
            enable_gqa=True,
        )
        return mixed[0].transpose(0, 1)


def group_rows(blocks: np.ndarray, max_blocks: int) -> list[slice]:
    """Cut rows, which have that many blocks in ascending order, into groups that are worth padding together."""
    groups, start = [], 0
    for row in range(1, len(blocks) + 1):
        if row == len(blocks) or (
            blocks[row] > GROUP_SPREAD * blocks[start] + 1 or (row + 1 - start) * blocks[row] > max_blocks
        ):
            groups.append(slice(start, row))
            start = row
    return groups


def _group(spans: Spans, rows: slice, blocks: np.ndarray, dtype: torch.dtype) -> _Group:
    """The padding of a row's blocks is its own first block: another row's might hold NaN."""
    width = int(blocks[-1])
    tables = spans.tables[rows, :width].astype(np.int64)
    padded = np.where(np.arange(width) < blocks[:, None], tables, tables[:, :1])
    lengths = spans.length[rows]
    hidden = torch.from_numpy(np.arange(lengths[-1]) >= lengths[:, None])
    mask = torch.zeros(hidden.shape, dtype=dtype).masked_fill_(hidden, float("-inf"))
    first = int(spans.first[rows.start])
    tokens = slice(first, first + len(lengths))
    return _Group(tokens, torch.from_numpy(padded.reshape(-1)), mask[:, None, None])


def _chunk(spans: Spans, row: int, dtype: torch.dtype) -> _Chunk:
    first, count, length = int(spans.first[row]), int(spans.count[row]), int(spans.length[row])
    mask = None
    if length > count:
        mask = torch.full((count, length), float("-inf"), dtype=dtype).triu_(length - count + 1)
    return _Chunk(slice(first, first + count), length, spans.blocks(row), mask)
