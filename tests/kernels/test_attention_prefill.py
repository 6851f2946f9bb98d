"""Attention of chunks over the paged cache, against the textbook's in float32; and bit-equality in any chunking."""

import itertools

import pytest
import torch

from fourstroke.procs.executor.kernels.attention_decode import decode_attention
from fourstroke.procs.executor.kernels.attention_prefill import prefill_attention

from .paged import Paged, allowed_error, attention, paged, random_queries

pytestmark = pytest.mark.filterwarnings("ignore:invalid value encountered in divide")  # in padding, which is not stored
FP8 = [torch.float8_e4m3fn, torch.float8_e4m3fnuz]
RAGGED = {257: 5, 1: 1, 40: 40, 130: 1, 17: 9}
"""Lengths of rows, and how many of their tokens are in the chunk."""


def _prefill(
    queries: torch.Tensor, cache: Paged, first: list[int], count: list[int], window: int = 0, scale: float = 1.0
) -> torch.Tensor:
    spans = (torch.tensor(first, dtype=torch.int32), torch.tensor(count, dtype=torch.int32), cache.lengths)
    tensors = (queries, cache.keys, cache.values, cache.tables, *spans)
    return prefill_attention(*tensors, max(count, default=0), queries.shape[2] ** -0.5, window, scale, scale)


def _assert_is_the_textbooks(
    heads: int, head_dim: int, cache: Paged, dtype: torch.dtype, window: int = 0, scale: float = 1.0
) -> None:
    """For the chunks of RAGGED, which lie in the flat batch with a token of nobody between each two."""
    counts = list(RAGGED.values())
    first = [end - count for end, count in zip(itertools.accumulate(c + 1 for c in counts), counts, strict=True)]
    queries = random_queries(first[-1] + counts[-1], heads, head_dim, dtype)
    actual = _prefill(queries, cache, first, counts, window, scale).float()
    error = allowed_error(dtype)
    for row, (start, count) in enumerate(zip(first, counts, strict=True)):
        own = slice(start, start + count)
        expected = attention(queries[own], *cache.row(row, scale), window)
        torch.testing.assert_close(actual[own], expected, atol=error, rtol=error)


def _chunk(cache: Paged, queries: torch.Tensor, start: int, end: int, window: int) -> torch.Tensor:
    """Tokens start .. end - 1 of the only row, as one chunk."""
    seen = Paged(cache.keys, cache.values, cache.tables, torch.tensor([end], dtype=torch.int32))
    return _prefill(queries[start:end], seen, [0], [end - start], window)


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
    ],
)
def test_is_the_textbooks(heads: int, kv_heads: int, head_dim: int, block_size: int, dtype: torch.dtype) -> None:
    """Whole prompts and chunks with a cached prefix, for every ratio of heads, head size, block size and type."""
    _assert_is_the_textbooks(heads, head_dim, paged(list(RAGGED), kv_heads, head_dim, block_size, dtype), dtype)


def test_more_heads_than_rows_of_a_tile() -> None:
    """71 query heads of one key head, as Falcon 7B has, are cut into several tiles."""
    cache = paged([20], 1, 64, 16, torch.float32)
    queries = random_queries(3, 71, 64, torch.float32)
    expected = attention(queries, *cache.row(0))
    torch.testing.assert_close(_prefill(queries, cache, [0], [3]), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("window", [1, 10, 1000])
def test_sees_the_window_only(window: int) -> None:
    """A token sees itself and window - 1 tokens before it; blocks that the chunk does not see may be another row's."""
    cache = paged(list(RAGGED), 1, 64, 16, torch.float32)
    freed = cache.without_before(0, max(0, 257 - 33 - window + 1))
    queries = random_queries(33, 3, 64, torch.float32)
    first_row = Paged(freed.keys, freed.values, freed.tables[:1], freed.lengths[:1])
    expected = attention(queries, *cache.row(0), window)
    torch.testing.assert_close(_prefill(queries, first_row, [0], [33], window), expected, atol=1e-5, rtol=1e-5)
    _assert_is_the_textbooks(3, 64, cache, torch.float32, window)


@pytest.mark.parametrize("stored", FP8)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_widens_8_bit_caches(stored: torch.dtype, dtype: torch.dtype) -> None:
    """Keys and values are scale times what is stored."""
    _assert_is_the_textbooks(2, 64, paged(list(RAGGED), 1, 64, 16, stored), dtype, scale=0.5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_is_stale_does_not_matter(dtype: torch.dtype) -> None:
    """NaN behind a row's tokens gives the same bits as zeros."""
    cache = paged([257, 3], 1, 80, 16, dtype)
    queries = random_queries(53, 4, 80, dtype)
    stale, clean = (_prefill(queries, one, [0, 50], [50, 3]) for one in (cache, cache.zeroed()))
    assert torch.equal(stale, clean)


@pytest.mark.parametrize(
    ("heads", "dtype", "window"),
    [(1, torch.float32, 0), (3, torch.float32, 40), (4, torch.bfloat16, 0), (2, torch.bfloat16, 40)],
)
def test_a_token_is_the_same_in_any_chunk(heads: int, dtype: torch.dtype, window: int) -> None:
    """Bit for bit: a prompt at once, in chunks that end anywhere, and with single tokens."""
    cache = paged([150], 1, 64, 16, dtype)
    queries = random_queries(150, heads, 64, dtype)
    whole = _chunk(cache, queries, 0, 150, window)
    for cuts in ([0, 64, 128, 150], [0, 1, 33, 149, 150]):
        chunks = [_chunk(cache, queries, start, end, window) for start, end in itertools.pairwise(cuts)]
        assert torch.equal(torch.cat(chunks), whole)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_row_is_the_same_in_any_batch(dtype: torch.dtype) -> None:
    """Bit for bit: alone, among others, with a wider table and a larger bound on the chunks."""
    cache = paged([100, 257], 2, 64, 16, dtype, spare=20)
    queries = random_queries(130, 6, 64, dtype)
    together = _prefill(queries, cache, [0, 100], [100, 30])
    alone = Paged(cache.keys, cache.values, cache.tables[1:, :17], cache.lengths[1:])
    assert torch.equal(_prefill(queries[100:], alone, [0], [30]), together[100:])


def test_one_token_agrees_with_decode() -> None:
    """A chunk of one token is a decode row; the kernels differ by rounding only."""
    cache = paged([257, 300], 1, 64, 16, torch.float32)
    queries = random_queries(2, 4, 64, torch.float32)
    decoded = decode_attention(queries, cache.keys, cache.values, cache.tables, cache.lengths, 64**-0.5)
    torch.testing.assert_close(_prefill(queries, cache, [0, 1], [1, 1]), decoded, atol=1e-6, rtol=1e-5)


def test_a_cache_of_more_than_2_31_numbers() -> None:
    """The last block of such a cache is found: no offset is computed in 32 bits."""
    small = paged([16], 1, 64, 16, torch.float8_e4m3fn, spare=0)
    blocks = 2**31 // (16 * 64) + 2
    # Memory of which only the last block is touched. Keys and values may be the same.
    large = torch.empty((blocks, 16, 1, 64), dtype=torch.float8_e4m3fn)
    large[-1] = small.keys[small.tables[0, 0]]
    cache = Paged(large, large, torch.tensor([[blocks - 1]], dtype=torch.int32), small.lengths)
    queries = random_queries(16, 1, 64, torch.float16)
    expected = attention(queries, *cache.row(0))
    torch.testing.assert_close(_prefill(queries, cache, [0], [16]).float(), expected, atol=2e-3, rtol=2e-3)


def test_no_rows() -> None:
    """A batch without rows is no launch."""
    cache = paged([3], 1, 64, 16, torch.float32)
    empty = Paged(cache.keys, cache.values, cache.tables[:0], cache.lengths[:0])
    assert _prefill(random_queries(1, 1, 64, torch.float32)[:0], empty, [], []).shape == (0, 1, 64)
