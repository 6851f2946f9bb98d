"""Rotation and the writing of the cache, against PyTorch's in float32 and its conversions to 8 bits."""

import pytest
import torch

from fourstroke.procs.executor.kernels.rope import rotate_and_write

BLOCKS, BLOCK_SIZE, POSITIONS = 4, 16, 64
FP8 = (torch.float8_e4m3fn, torch.float8_e4m3fnuz)


def _tables(head_dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    frequencies = 1.0 / 10000 ** (torch.arange(0, head_dim, 2) / head_dim)
    angles = torch.outer(torch.arange(POSITIONS), frequencies)
    return angles.cos(), angles.sin()


def _qkv(tokens: int, heads: int, kv_heads: int, head_dim: int, dtype: torch.dtype) -> torch.Tensor:
    shape = (tokens, (heads + 2 * kv_heads) * head_dim)
    return torch.randn(shape, generator=torch.Generator().manual_seed(heads * head_dim)).to(dtype)


def _cache(kv_heads: int, head_dim: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values filled with a number that tells what was not written."""
    shape = (BLOCKS, BLOCK_SIZE, kv_heads, head_dim)
    return torch.full(shape, -7.0).to(dtype), torch.full(shape, -7.0).to(dtype)


def _turn(heads: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """[tokens, heads, head_dim] rotated in float32, as Hugging Face does."""
    cos, sin = (table[positions][:, None] for table in _tables(heads.shape[-1]))
    left, right = heads.float().chunk(2, dim=-1)
    return torch.cat((left * cos - right * sin, right * cos + left * sin), dim=-1)


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view({1: torch.uint8, 2: torch.int16, 4: torch.int32}[tensor.dtype.itemsize])


@pytest.mark.parametrize(
    ("heads", "kv_heads", "head_dim"), [(1, 1, 64), (9, 3, 64), (16, 1, 80), (8, 8, 128), (4, 2, 256)]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_queries_turn_and_keys_and_values_land_in_their_slots(
    heads: int, kv_heads: int, head_dim: int, dtype: torch.dtype
) -> None:
    """Queries and keys are rotated in float32 and rounded once; values are copied; other slots stay as they were."""
    positions, slots = torch.tensor([5, 0, 63]), torch.tensor([17, 63, 0])
    qkv, (keys, values) = _qkv(3, heads, kv_heads, head_dim, dtype), _cache(kv_heads, head_dim, dtype)
    queries = rotate_and_write(qkv, *_tables(head_dim), positions, slots, keys, values, heads)

    parts = qkv.view(3, heads + 2 * kv_heads, head_dim)
    step = torch.finfo(dtype).eps
    turned = _turn(parts[:, : heads + kv_heads], positions)
    flat_keys, flat_values = keys.flatten(0, 1), values.flatten(0, 1)
    torch.testing.assert_close(queries.float(), turned[:, :heads], rtol=step, atol=1e-6)
    torch.testing.assert_close(flat_keys[slots].float(), turned[:, heads:], rtol=step, atol=1e-6)
    assert torch.equal(flat_values[slots], parts[:, heads + kv_heads :])
    untouched = torch.ones(BLOCKS * BLOCK_SIZE, dtype=torch.bool)
    untouched[slots] = False
    assert (flat_keys[untouched] == -7).all()
    assert (flat_values[untouched] == -7).all()


@pytest.mark.parametrize("cache", [torch.float32, torch.bfloat16, *FP8])
def test_a_slot_of_minus_one_writes_nothing(cache: torch.dtype) -> None:
    """Padding rows of a graph leave the cache alone, its last slot too; their queries are rotated all the same."""
    (keys, values), (before, _) = _cache(2, 64, cache), _cache(2, 64, cache)
    qkv, positions = _qkv(2, 4, 2, 64, torch.bfloat16), torch.tensor([3, 0])
    padded = rotate_and_write(qkv, *_tables(64), positions, torch.tensor([-1, -1]), keys, values, 4)
    assert torch.equal(_bits(keys), _bits(before))
    assert torch.equal(_bits(values), _bits(before))
    assert torch.equal(padded, rotate_and_write(qkv, *_tables(64), positions, torch.tensor([1, 2]), keys, values, 4))


@pytest.mark.parametrize("cache", FP8)
def test_an_8_bit_cache_holds_the_scaled_numbers(cache: torch.dtype) -> None:
    """Stored is the rotated number in the model's dtype over the scale, rounded as PyTorch rounds it, bit for bit."""
    qkv, positions, slots = _qkv(3, 4, 2, 64, torch.bfloat16), torch.tensor([5, 0, 63]), torch.tensor([17, 63, 0])
    wide, narrow = _cache(2, 64, torch.bfloat16), _cache(2, 64, cache)
    rotate_and_write(qkv, *_tables(64), positions, slots, *wide, 4)
    rotate_and_write(qkv, *_tables(64), positions, slots, *narrow, 4, key_scale=0.3, value_scale=0.02)
    for full, stored, scale in zip(wide, narrow, (0.3, 0.02), strict=True):
        expected = (full.float() / scale).flatten(0, 1)[slots].to(cache)
        assert torch.equal(_bits(stored.flatten(0, 1)[slots]), _bits(expected))


@pytest.mark.parametrize("cache", FP8)
def test_what_is_too_large_for_8_bits_saturates(cache: torch.dtype) -> None:
    """A number beyond the type's largest becomes that, of either sign: never NaN."""
    qkv = torch.tensor([[1.0, 1.0, 1e4, -1e4, -1e4, 1e4]])  # one head of two: query, key, value
    keys, values = _cache(1, 2, cache)
    rotate_and_write(qkv, *_tables(2), torch.tensor([0]), torch.tensor([0]), keys, values, 1)
    most = torch.finfo(cache).max
    assert keys[0, 0, 0].float().tolist() == [most, -most]
    assert values[0, 0, 0].float().tolist() == [-most, most]


def test_a_token_is_the_same_bits_alone_and_in_a_batch() -> None:
    """No other token changes a token's query, key or value."""
    qkv, positions, slots = _qkv(5, 9, 3, 64, torch.bfloat16), torch.arange(5) * 3, torch.arange(5) + 20
    together, alone = _cache(3, 64, torch.bfloat16), _cache(3, 64, torch.bfloat16)
    queries = rotate_and_write(qkv, *_tables(64), positions, slots, *together, 9)
    one_by_one = [
        rotate_and_write(qkv[i, None], *_tables(64), positions[i, None], slots[i, None], *alone, 9) for i in range(5)
    ]
    assert torch.equal(queries, torch.cat(one_by_one))
    assert torch.equal(together[0], alone[0])
    assert torch.equal(together[1], alone[1])
