"""What the self-tests compute: GEMM and attention, the two in which nearly all of a model's time goes.

A fault of a driver, a library or a processor shows in them first.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from ..attention.backend import Backend, Spans
from ..attention.reference import ReferenceAttention
from ..kv_cache import KvCache
from ..layers.linear import Linear
from ..models.config import ModelConfig
from .selftest import Computation, SelfTest

_ROWS, _INPUTS, _OUTPUTS = 33, 1024, 768

_HEADS, _KV_HEADS, _HEAD_DIM, _BLOCK_SIZE = 8, 2, 64, 16
_CACHED_AND_NEW = ((0, 1), (16, 1), (300, 1), (0, 40), (50, 33))
"""Rows of the batch: decodes, then chunks, one of them behind a cached prefix."""

MakeLinear = Callable[[torch.Tensor], Linear]
"""From a weight [out, in] to the projection by it."""


def gemm(
    where: str,
    dtype: torch.dtype,
    device: torch.device,
    make_linear: MakeLinear,
    narrow: torch.dtype | None = None,
) -> SelfTest:
    """A projection of several rows, all in a dtype; `narrow` is what it makes of that by itself, if it does."""
    hidden, weight = _random(1, _ROWS, _INPUTS).to(dtype), _random(2, _OUTPUTS, _INPUTS).to(dtype)

    def make() -> Computation:
        project, there = make_linear(weight.to(device)), hidden.to(device)
        return lambda: project(there)

    def right() -> torch.Tensor:
        """In float64, which no backend has: in float32 it would be compared with itself."""
        return (hidden.double() @ weight.double().T).float()

    return SelfTest(_name("GEMM", narrow or dtype, where), narrow or dtype, device, make, right)


def attention(where: str, dtype: torch.dtype, device: torch.device, backend: Backend) -> SelfTest:
    """Attention of decodes and chunks over scattered blocks of a cache."""
    spans = _spans()
    queries = _random(3, int(spans.count.sum()), _HEADS, _HEAD_DIM).to(dtype)

    def make() -> Computation:
        cache, there = _filled_cache(spans, dtype, device), queries.to(device)
        layer = cache.layers[0]
        return lambda: backend(spans, cache).attend(there, layer)

    def right() -> torch.Tensor:
        exact = _filled_cache(spans, dtype, torch.device("cpu"), torch.float32)
        return ReferenceAttention(spans, exact).attend(queries.float(), exact.layers[0])

    return SelfTest(_name("attention", dtype, where), dtype, device, make, right)


def _name(what: str, dtype: torch.dtype, where: str) -> str:
    return f"{what} in {str(dtype).removeprefix('torch.')} on {where}"


def _random(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def _spans() -> Spans:
    cached, count = np.array(_CACHED_AND_NEW, np.int64).T
    length = cached + count
    width = -(-int(length.max()) // _BLOCK_SIZE)
    tables = np.random.default_rng(0).permutation(width * len(count)).reshape(len(count), width).astype(np.int32)
    return Spans(np.cumsum(count) - count, count, length, tables, _BLOCK_SIZE)


def _filled_cache(spans: Spans, dtype: torch.dtype, device: torch.device, stored: torch.dtype | None = None) -> KvCache:
    """A cache of one layer, full of random numbers that are rounded to a dtype, and stored as another if need be."""
    model = ModelConfig(
        vocab_size=1,
        hidden_size=_HEADS * _HEAD_DIM,
        intermediate_size=1,
        layers=1,
        heads=_HEADS,
        kv_heads=_KV_HEADS,
        head_dim=_HEAD_DIM,
        max_position=1,
        rms_norm_eps=1e-5,
        rope_theta=1.0,
    )
    where = None if device.type == "cpu" else device
    cache = KvCache(model, spans.tables.size, _BLOCK_SIZE, stored or dtype, where)
    layer = cache.layers[0]
    for seed, part in ((4, layer.keys), (5, layer.values)):
        part.copy_(_random(seed, *part.shape).to(dtype))
    return cache
