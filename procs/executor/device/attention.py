"""Attention of a step on a device: decodes by one kernel, chunks of prompts by another. See attention/backend.py.

The decode kernel splits a row along its keys, so it adds in another order than the kernel for chunks, whose results
are the same whatever the chunk. Where a row's bits must not depend on how its prompt was cut, decodes are chunks of one
token.
"""

from __future__ import annotations

import torch

from ..kernels.attention_decode import decode_attention
from ..kernels.attention_prefill import prefill_attention
from ..kv_cache import LayerCache
from .buffers import StepInput
from .program import Mix


class TritonAttention:
    """See attention.backend.Attention. `tables` is int32 [rows, blocks]: the block tables of the step's rows."""

    def __init__(self, inputs: StepInput, tables: torch.Tensor, mix: Mix, invariant: bool) -> None:
        self._first, self._count, self._lengths = inputs.first, inputs.count, inputs.lengths
        self._tables = tables
        self._decodes = 0 if invariant else mix.decodes
        self._most_tokens = mix.most_tokens

    def attend(self, queries: torch.Tensor, cache: LayerCache) -> torch.Tensor:
        decodes = self._decodes
        if decodes == len(self._lengths):
            return self._decode(queries, cache)
        mixed = self._prefill(queries, cache)
        if decodes:
            mixed[:decodes] = self._decode(queries[:decodes], cache)
        return mixed

    def _decode(self, queries: torch.Tensor, cache: LayerCache) -> torch.Tensor:
        rows, scale = slice(len(queries)), queries.shape[-1] ** -0.5
        return decode_attention(
            queries,
            cache.keys,
            cache.values,
            self._tables[rows],
            self._lengths[rows],
            scale,
            key_scale=cache.key_scale,
            value_scale=cache.value_scale,
        )

    def _prefill(self, queries: torch.Tensor, cache: LayerCache) -> torch.Tensor:
        """Of the rows behind the decodes, whose places in the result stay open."""
        rows, scale = slice(self._decodes, None), queries.shape[-1] ** -0.5
        return prefill_attention(
            queries,
            cache.keys,
            cache.values,
            self._tables[rows],
            self._first[rows],
            self._count[rows],
            self._lengths[rows],
            self._most_tokens,
            scale,
            key_scale=cache.key_scale,
            value_scale=cache.value_scale,
        )
