"""Attention of decode rows over the paged cache, against the textbook's in float32; and bit-equality in any batch."""

import pytest
import torch

from fourstroke.procs.executor.kernels.attention_decode import PART_TOKENS, decode_attention

from .paged import Paged, allowed_error, attention, paged, random_queries

RAGGED = [257, 1, 64, 0, 16, 31]
FP8 = [torch.float8_e4m3fn, torch.float8_e4m3fnuz]


def _decode(queries: torch.Tensor, cache: Paged, window: int = 0, scale: float = 1.0) -> torch.Tensor:
    tensors = (queries, cache.keys, cache.values, cache.tables, cache.lengths)
    return decode_attention(*tensors, queries.shape[2] ** -0.5, window, scale, scale)


def _expected(queries: torch.Tensor, cache: Paged, window: int = 0, scale: float = 1.0) -> torch.Tensor:
    """A row without tokens gets zeros."""
    expected = torch.zeros(queries.shape)
    for row in cache.lengths.nonzero()[:, 0].tolist():
        expected[row] = attention(queries[row : row + 1], *cache.row(row, scale), window)[0]
    return expected


def _assert_close(actual: torch.Tensor, expected: torch.Tensor) -> None:
    error = allowed_error(actual.dtype)
    torch.testing.assert_close(actual.float(), expected, atol=error, rtol=error)


@pytest.mark.parametrize(
    ("heads", "kv_heads", "head_dim", "block_size", "dtype"),
    [
        (2, 2, 64, 16, torch.float32),
        (4, 2, 128, 32, torch.bfloat16),
        (9, 3, 64, 128, torch.bfloat16),
        (4, 1, 80, 48, torch.float16),
        (7, 1, 96, 16, torch.bfloat16),
        (8, 1, 256, 64, torch.bfloat16),
        (16, 1, 128, 16, torch.float32),
        (40, 2, 64, 32, torch.float32),
    ],
)
def test_is_the_textbooks(heads: int, kv_heads: int, head_dim: int, block_size: int, dtype: torch.dtype) -> None:
    """Ragged rows, the empty one included, for every ratio of heads, head size, block size and type."""
    cache = paged(RAGGED, kv_heads, head_dim, block_size, dtype)
    queries = random_queries(len(RAGGED), heads, head_dim, dtype)
    _assert_close(_decode(queries, cache), _expected(queries, cache))


def test_many_parts() -> None:
    """Rows of more parts than are merged at a time, and of exactly one and two parts."""
    lengths = [PART_TOKENS * 16 + 5, PART_TOKENS, 2 * PART_TOKENS]
    cache = paged(lengths, 1, 64, 64, torch.float32)
    queries = random_queries(3, 2, 64, torch.float32)
    _assert_close(_decode(queries, cache), _expected(queries, cache))


@pytest.mark.parametrize("window", [1, 50, 256, 1000])
def test_sees_the_window_only(window: int) -> None:
    """A row sees its last `window` tokens; the blocks before may belong to others."""
    lengths = [600, 40, 257]
    cache = paged(lengths, 1, 64, 16, torch.float32)
    queries = random_queries(3, 3, 64, torch.float32)
    freed = cache
    for row, length in enumerate(lengths):
        freed = freed.without_before(row, max(0, length - window))
    _assert_close(_decode(queries, freed, window), _expected(queries, cache, window))


@pytest.mark.parametrize("stored", FP8)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_widens_8_bit_caches(stored: torch.dtype, dtype: torch.dtype) -> None:
    """Keys and values are scale times what is stored."""
    cache = paged([70, 20], 2, 64, 16, stored)
    queries = random_queries(2, 4, 64, dtype)
    _assert_close(_decode(queries, cache, scale=0.5), _expected(queries, cache, scale=0.5))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_is_stale_does_not_matter(dtype: torch.dtype) -> None:
    """NaN behind a row's tokens gives the same bits as zeros."""
    cache = paged([257, 3, 65], 1, 80, 16, dtype)
    queries = random_queries(3, 4, 80, dtype)
    assert torch.equal(_decode(queries, cache), _decode(queries, cache.zeroed()))


@pytest.mark.parametrize(("dtype", "window"), [(torch.float32, 0), (torch.bfloat16, 0), (torch.bfloat16, 100)])
def test_a_row_is_the_same_in_any_batch(dtype: torch.dtype, window: int) -> None:
    """Bit for bit: alone, among others, in another order, with wider tables."""
    lengths = [257, 300, 1, 70]
    cache = paged(lengths, 1, 64, 16, dtype, spare=20)
    queries = random_queries(len(lengths), 3, 64, dtype)
    together = _decode(queries, cache, window)
    for row, length in enumerate(lengths):
        narrow = cache.tables[row : row + 1, : -(-length // 16)]
        alone = Paged(cache.keys, cache.values, narrow, cache.lengths[row : row + 1])
        assert torch.equal(_decode(queries[row : row + 1], alone, window)[0], together[row])
    order = torch.tensor([2, 0, 3, 1])
    turned = Paged(cache.keys, cache.values, cache.tables[order], cache.lengths[order])
    assert torch.equal(_decode(queries[order], turned, window), together[order])


def test_a_cache_of_more_than_2_31_numbers() -> None:
    """The last block of such a cache is found: no offset is computed in 32 bits."""
    small = paged([16], 1, 64, 16, torch.float8_e4m3fn, spare=0)
    blocks = 2**31 // (16 * 64) + 2
    # Memory of which only the last block is touched. Keys and values may be the same.
    large = torch.empty((blocks, 16, 1, 64), dtype=torch.float8_e4m3fn)
    large[-1] = small.keys[small.tables[0, 0]]
    cache = Paged(large, large, torch.tensor([[blocks - 1]], dtype=torch.int32), small.lengths)
    queries = random_queries(1, 1, 64, torch.float16)
    _assert_close(_decode(queries, cache), _expected(queries, cache))


def test_no_rows() -> None:
    """A batch without rows has an empty result."""
    cache = paged([3], 1, 64, 16, torch.float32)
    empty = Paged(cache.keys, cache.values, cache.tables[:0], cache.lengths[:0])
    assert _decode(random_queries(1, 1, 64, torch.float32)[:0], empty).shape == (0, 1, 64)
