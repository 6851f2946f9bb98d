"""Causal attention of chunks of prompts over the paged KV cache, which holds the chunk's own tokens already.

Keys and values are [blocks, block_size, Hk, D]. A program takes one key head and a tile of a row's tokens: each token
with each query head of that key head is a row of the matrix products (as in vLLM's unified attention). Tiles of keys
lie at absolute positions, and one of which a token sees nothing does not change its result: that is the same, bit for
bit, in whatever chunk and batch the token is computed, a chunk of one token included. The decode kernel adds in another
order, so whoever wants decoded tokens to have the bits of recomputed ones computes them here as well.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from .architectures import architecture_of
from .attention_shapes import AttentionShape, typed_cases
from .attention_tiles import LOG2_E, token_offsets, weigh
from .tuning import Tuning, tuning
from .variants import Variant


@triton.jit(
    do_not_specialize=["table_stride"],
    do_not_specialize_on_alignment=["tables", "first", "count", "lengths"],
)
def _attend_chunk(
    queries, keys, values, tables, first, count, lengths, mixed,
    score_scale, value_scale, table_stride, block_stride,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_SIZE: tl.constexpr, WINDOW: tl.constexpr,
    TILE_HEADS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    GROUP: tl.constexpr = HEADS // KV_HEADS
    TILES: tl.constexpr = (GROUP + TILE_HEADS - 1) // TILE_HEADS
    TILE_TOKENS: tl.constexpr = BLOCK_M // TILE_HEADS
    KIND: tl.constexpr = queries.dtype.element_ty
    row = tl.program_id(2).to(tl.int64)
    tokens = tl.load(count + row)
    tile_token = tl.program_id(1) * TILE_TOKENS
    if tile_token >= tokens:
        return

    length = tl.load(lengths + row)
    kv_head = tl.program_id(0) // TILES
    lane = tl.arange(0, BLOCK_M)
    token = tile_token + lane // TILE_HEADS
    in_group = tl.program_id(0) % TILES * TILE_HEADS + lane % TILE_HEADS
    own = (lane < TILE_TOKENS * TILE_HEADS) & (token < tokens) & (in_group < GROUP)
    head = (tl.load(first + row).to(tl.int64) + token) * HEADS + kv_head * GROUP + in_group

    cached = length - tokens
    lowest = tl.maximum(cached + tile_token - WINDOW + 1, 0) if WINDOW else 0
    end = tl.minimum(cached + tile_token + TILE_TOKENS, length)
    last = (cached + token)[:, None]
    place = tl.arange(0, BLOCK_D)
    highest = tl.full([BLOCK_M], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    state = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    for tile in range(lowest // BLOCK_N * BLOCK_N, end, BLOCK_N):
        positions = tile + tl.arange(0, BLOCK_N)
        wanted = (positions >= lowest) & (positions < end)
        table = tables + row * table_stride
        offsets = token_offsets(table, positions, wanted, kv_head, block_stride, KV_HEADS, HEAD_DIM, BLOCK_SIZE)
        scores = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
        for piece in range(0, HEAD_DIM, BLOCK_K):
            dim = piece + tl.arange(0, BLOCK_K)
            inside = dim < HEAD_DIM
            query_at = queries + head[:, None] * HEAD_DIM + dim[None, :]
            query = tl.load(query_at, mask=own[:, None] & inside[None, :], other=0.0)
            key_at = keys + offsets[None, :] + dim[:, None]
            key = tl.load(key_at, mask=wanted[None, :] & inside[:, None], other=0.0).to(KIND)
            scores = tl.dot(query, key, scores, input_precision="ieee")
        visible = positions[None, :] <= last
        if WINDOW:
            visible = visible & (positions[None, :] > last - WINDOW)
        weights, decay, highest, total = weigh(scores * score_scale, visible, highest, total, 1)
        value_at = values + offsets[:, None] + place[None, :]
        value = tl.load(value_at, mask=wanted[:, None] & (place < HEAD_DIM)[None, :], other=0.0).to(KIND)
        state = tl.dot(weights.to(KIND), value, state * decay[:, None], input_precision="ieee")

    result = (state / total[:, None] * value_scale).to(mixed.dtype.element_ty)
    mixed_at = mixed + head[:, None] * HEAD_DIM + place[None, :]
    tl.store(mixed_at, result, mask=own[:, None] & (place < HEAD_DIM)[None, :])


def prefill_attention(
    queries: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    tables: torch.Tensor,
    first: torch.Tensor,
    count: torch.Tensor,
    length: torch.Tensor,
    most_tokens: int,
    scale: float,
    window: int = 0,
    key_scale: float = 1.0,
    value_scale: float = 1.0,
) -> torch.Tensor:
    """Causal attention of rows' last tokens, `queries` [T, Hq, D], to the rows' tokens; [T, Hq, D] in their dtype.

    Row r (`first`, `count`, `length`: int32 [R]) has the queries first[r] .. first[r] + count[r] - 1, the last
    count[r] of its length[r] tokens; `most_tokens` is at least the largest count. Cache, scales, `tables` int32 [R, B]
    and `window` are as in decode_attention: with a window, a token sees itself and window - 1 tokens before it. Queries
    of no row get an undefined result. Of the cache, only tokens are read that some query of a tile sees; a NaN among
    these does reach the other queries of the tile.
    """
    shape = AttentionShape.of(queries, keys, window)
    arch = architecture_of(queries.device)
    constants = _constants(shape, arch)
    tile_heads = constants["TILE_HEADS"]
    head_tiles = shape.kv_heads * triton.cdiv(shape.group, tile_heads)
    token_tiles = triton.cdiv(most_tokens, constants["BLOCK_M"] // tile_heads)
    mixed = torch.empty_like(queries)
    _attend_chunk[head_tiles, token_tiles, len(count)](
        queries, keys, values, tables, first, count, length, mixed,
        scale * key_scale * LOG2_E, value_scale, tables.stride(0), keys.stride(0),
        **constants, **_tuning(shape, arch).options,
    )  # fmt: skip
    return mixed


def _tuning(shape: AttentionShape, arch: str) -> Tuning:
    return tuning("prefill_attention" if shape.head_dim <= 128 else "prefill_attention_wide", arch)


def _constants(shape: AttentionShape, arch: str) -> dict[str, int]:
    blocks = shape.blocks(_tuning(shape, arch))
    return {**shape.constants, **blocks, "TILE_HEADS": min(shape.group, blocks["BLOCK_M"])}


def variants(arch: str) -> list[Variant]:
    """The models of attention_shapes.CASES, with 16-bit caches and 8-bit ones."""
    return [_variant(arch, *case) for case in typed_cases(arch)]


def _variant(arch: str, dtype: str, cache: str, shape: AttentionShape) -> Variant:
    counts = dict.fromkeys(("tables", "first", "count", "lengths"), "*i32")
    signature = {
        "queries": f"*{dtype}", "keys": f"*{cache}", "values": f"*{cache}", **counts, "mixed": f"*{dtype}",
        "score_scale": "fp32", "value_scale": "fp32", "table_stride": "i32", "block_stride": "i32",
    }  # fmt: skip
    return Variant(
        f"{dtype} over {cache} {shape}",
        _attend_chunk,
        signature,
        _constants(shape, arch),
        _tuning(shape, arch),
        dot=True,
        fp8=cache.startswith("fp8"),
        multiples_of_16=("block_stride",),
        large=("keys", "values"),
    )
