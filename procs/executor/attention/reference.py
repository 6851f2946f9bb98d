"""Attention as the textbook writes it, in float32, one row at a time: what the fast backends are compared with."""

from __future__ import annotations

import torch

from ..kv_cache import KvCache, LayerCache
from .backend import Spans


class ReferenceAttention:
    """See backend.Attention."""

    def __init__(self, spans: Spans, _cache: KvCache) -> None:
        self._spans = spans

    def attend(self, queries: torch.Tensor, cache: LayerCache) -> torch.Tensor:
        spans = self._spans
        mixed = torch.empty_like(queries, memory_format=torch.contiguous_format)
        for row, (first, count, length) in enumerate(zip(spans.first, spans.count, spans.length, strict=True)):
            blocks = spans.blocks(row)
            keys = cache.keys[blocks].flatten(0, 1)[:length].float()
            values = cache.values[blocks].flatten(0, 1)[:length].float()
            tokens = slice(int(first), int(first + count))
            mixed[tokens] = _attend_row(queries[tokens].float(), keys, values).to(queries.dtype)
        return mixed


def _attend_row(queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    count, heads, head_dim = queries.shape
    length, kv_heads, _ = keys.shape
    keys = keys.repeat_interleave(heads // kv_heads, dim=1)
    values = values.repeat_interleave(heads // kv_heads, dim=1)
    scores = torch.einsum("qhd,khd->hqk", queries, keys) / head_dim**0.5
    future = torch.ones(count, length, dtype=torch.bool).triu(length - count + 1)
    scores.masked_fill_(future, float("-inf"))
    return torch.einsum("hqk,khd->qhd", scores.softmax(-1), values)
