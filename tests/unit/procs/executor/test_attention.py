"""Fast attention against the textbook, over ragged batches of decodes and chunks."""

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings

from fourstroke.procs.executor.attention import cpu
from fourstroke.procs.executor.attention.backend import Spans
from fourstroke.procs.executor.attention.cpu import CpuAttention, group_rows
from fourstroke.procs.executor.attention.reference import ReferenceAttention
from fourstroke.procs.executor.kv_cache import KvCache
from fourstroke.procs.executor.models.config import ModelConfig

HEAD_DIM = 16


def cache_of(num_blocks: int, block_size: int, kv_heads: int, dtype: torch.dtype) -> KvCache:
    """A cache of one layer full of random numbers."""
    config = ModelConfig(
        vocab_size=1,
        hidden_size=1,
        intermediate_size=1,
        layers=1,
        heads=kv_heads,
        kv_heads=kv_heads,
        head_dim=HEAD_DIM,
        max_position=1,
        rms_norm_eps=1e-5,
        rope_theta=1.0,
    )
    cache = KvCache(config, num_blocks, block_size, dtype)
    for part in (cache.layers[0].keys, cache.layers[0].values):
        part.copy_(torch.randn(part.shape, generator=torch.Generator().manual_seed(num_blocks)))
    return cache


def spans_of(rows: list[tuple[int, int]], block_size: int) -> Spans:
    """Spans of rows given as (cached tokens, tokens of this step), in scattered blocks."""
    rows = sorted(rows, key=lambda row: (row[1] > 1, row[0] if row[1] == 1 else 0))
    cached, count = np.array(rows, np.int64).T
    length = cached + count
    width = int(-(-length.max() // block_size))
    tables = np.random.default_rng(0).permutation(width * len(rows)).reshape(len(rows), width).astype(np.int32)
    return Spans(np.cumsum(count) - count, count, length, tables, block_size)


decode_rows = st.tuples(st.integers(0, 70), st.just(1))
chunk_rows = st.tuples(st.one_of(st.just(0), st.integers(0, 50)), st.integers(2, 30))


@given(
    rows=st.lists(st.one_of(decode_rows, chunk_rows), min_size=1, max_size=12),
    block_size=st.sampled_from([1, 4, 16]),
    heads=st.sampled_from([(1, 1), (3, 1), (4, 4), (9, 3)]),
)
@settings(max_examples=60, deadline=None)
def test_equals_the_reference(rows: list[tuple[int, int]], block_size: int, heads: tuple[int, int]) -> None:
    """In float32 the two agree to rounding, whatever the lengths, prefixes, head ratios and block sizes."""
    spans = spans_of(rows, block_size)
    cache = cache_of(spans.tables.size, block_size, heads[1], torch.float32)
    queries = torch.randn(int(spans.count.sum()), heads[0], HEAD_DIM, generator=torch.Generator().manual_seed(1))
    fast = CpuAttention(spans, cache).attend(queries, cache.layers[0])
    slow = ReferenceAttention(spans, cache).attend(queries, cache.layers[0])
    torch.testing.assert_close(fast, slow, rtol=1e-5, atol=1e-5)


def test_bfloat16_is_as_close_as_its_precision() -> None:
    """In bfloat16 the two agree to a few units in its last place."""
    spans = spans_of([(3, 1), (40, 1), (41, 1), (0, 9), (20, 7)], 16)
    cache = cache_of(spans.tables.size, 16, 3, torch.bfloat16)
    queries = torch.randn(int(spans.count.sum()), 9, HEAD_DIM, generator=torch.Generator().manual_seed(1)).bfloat16()
    fast = CpuAttention(spans, cache).attend(queries, cache.layers[0])
    slow = ReferenceAttention(spans, cache).attend(queries, cache.layers[0])
    torch.testing.assert_close(fast, slow, rtol=2e-2, atol=2e-2)


def test_nan_of_other_rows_stays_out() -> None:
    """Padding never reads another row's blocks: their NaN would pass through a weight of zero."""
    spans = spans_of([(15, 1), (31, 1), (34, 1), (10, 5)], 16)
    cache = cache_of(spans.tables.size, 16, 2, torch.float32)
    queries = torch.randn(8, 2, HEAD_DIM)
    expected = ReferenceAttention(spans, cache).attend(queries, cache.layers[0])
    own = set(spans.tables[0, :1]) | set(spans.tables[1, :2]) | set(spans.tables[2, :3]) | set(spans.tables[3, :1])
    others = [block for block in range(len(cache.layers[0].keys)) if block not in own]
    cache.layers[0].keys[others] = float("nan")
    cache.layers[0].values[others] = float("nan")
    torch.testing.assert_close(CpuAttention(spans, cache).attend(queries, cache.layers[0]), expected)


@given(st.lists(st.integers(1, 600), min_size=0, max_size=40).map(sorted), st.integers(1, 800))
def test_groups_cover_all_rows_once_and_are_bounded(blocks: list[int], max_blocks: int) -> None:
    """Groups follow each other without a gap; a group of several rows is bounded and alike in length."""
    groups = group_rows(np.array(blocks, np.int64), max_blocks)
    assert [row for group in groups for row in range(group.start, group.stop)] == list(range(len(blocks)))
    for group in groups:
        members = blocks[group]
        if len(members) > 1:
            assert len(members) * members[-1] <= max_blocks
            assert members[-1] <= cpu.GROUP_SPREAD * members[0] + 1


def test_groups_grow_as_long_as_they_may() -> None:
    """Rows of one length share one group."""
    assert group_rows(np.full(32, 4), 128) == [slice(0, 32)]
    assert group_rows(np.full(32, 4), 64) == [slice(0, 16), slice(16, 32)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_cleared_blocks_are_zero_and_others_are_not(dtype: torch.dtype) -> None:
    """Clearing touches the named blocks, keys and values, and no others."""
    cache = cache_of(5, 4, 2, dtype)
    cache.clear(torch.tensor([1, 3]))
    for part in (cache.layers[0].keys, cache.layers[0].values):
        assert [bool(block.any()) for block in part] == [True, False, True, False, True]
