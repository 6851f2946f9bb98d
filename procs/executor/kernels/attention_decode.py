"""Attention of one token a row over the paged KV cache, split along the keys (Flash-Decoding, Dao et al. 2023).

Keys and values are [blocks, block_size, Hk, D]. A program takes one key head and one part of PART_TOKENS tokens of a
row; a second kernel merges the parts. They lie at absolute positions and their size is a constant: what is added to
what depends on the row's own length only. The query heads that share the key head are the columns of the matrix
products, padded to the 16 of a matrix unit; keys are the rows, which the waves share (with the heads as rows, each wave
would compute all scores). 8-bit caches are widened to the queries' type, which is exact; their scales are applied in
float32.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from .architectures import architecture_of
from .attention_shapes import CASES, AttentionShape, typed_cases
from .attention_tiles import LOG2_E, token_offsets, weigh
from .tuning import Tuning, tuning
from .variants import Variant

PART_TOKENS = 256
"""Tokens of a part: enough to pay for its query and its partial result, few enough that one long row fills a card."""

BLOCK_H = 16
"""Query heads of a program."""


@triton.jit(do_not_specialize=["table_stride"], do_not_specialize_on_alignment=["tables", "lengths"])
def _attend_part(
    queries, keys, values, tables, lengths, partial, weight,
    score_scale, table_stride, block_stride,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_SIZE: tl.constexpr,
    WINDOW: tl.constexpr, PART: tl.constexpr,
    BLOCK_H: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    GROUP: tl.constexpr = HEADS // KV_HEADS
    TILES: tl.constexpr = (GROUP + BLOCK_H - 1) // BLOCK_H
    KIND: tl.constexpr = queries.dtype.element_ty
    part = tl.program_id(1)
    row = tl.program_id(2).to(tl.int64)
    length = tl.load(lengths + row)
    start = tl.maximum(part * PART, length - WINDOW) if WINDOW else part * PART
    end = tl.minimum(part * PART + PART, length)
    if start >= end:
        return

    kv_head = tl.program_id(0) // TILES
    in_group = tl.program_id(0) % TILES * BLOCK_H + tl.arange(0, BLOCK_H)
    own = in_group < GROUP
    head = row * HEADS + kv_head * GROUP + in_group
    place = tl.arange(0, BLOCK_D)
    highest = tl.full([BLOCK_H], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_H], tl.float32)
    mixed = tl.zeros([BLOCK_D, BLOCK_H], tl.float32)
    for tile in range(start, end, BLOCK_N):
        positions = tile + tl.arange(0, BLOCK_N)
        wanted = positions < end
        table = tables + row * table_stride
        offsets = token_offsets(table, positions, wanted, kv_head, block_stride, KV_HEADS, HEAD_DIM, BLOCK_SIZE)
        scores = tl.zeros([BLOCK_N, BLOCK_H], tl.float32)
        for piece in range(0, HEAD_DIM, BLOCK_K):
            dim = piece + tl.arange(0, BLOCK_K)
            inside = dim < HEAD_DIM
            query_at = queries + head[None, :] * HEAD_DIM + dim[:, None]
            query = tl.load(query_at, mask=inside[:, None] & own[None, :], other=0.0)
            key_at = keys + offsets[:, None] + dim[None, :]
            key = tl.load(key_at, mask=wanted[:, None] & inside[None, :], other=0.0).to(KIND)
            scores = tl.dot(key, query, scores, input_precision="ieee")
        weights, decay, highest, total = weigh(scores * score_scale, wanted[:, None], highest, total, 0)
        value_at = values + offsets[None, :] + place[:, None]
        value = tl.load(value_at, mask=wanted[None, :] & (place < HEAD_DIM)[:, None], other=0.0).to(KIND)
        mixed = tl.dot(value, weights.to(KIND), mixed * decay[None, :], input_precision="ieee")

    slot = head * tl.num_programs(1) + part
    partial_at = partial + slot[None, :] * HEAD_DIM + place[:, None]
    tl.store(partial_at, mixed / total[None, :], mask=own[None, :] & (place < HEAD_DIM)[:, None])
    tl.store(weight + slot, highest + tl.log2(total), mask=own)


@triton.jit(do_not_specialize=["parts"], do_not_specialize_on_alignment=["lengths"])
def _merge_parts(
    partial, weight, lengths, mixed, value_scale, parts,
    HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, WINDOW: tl.constexpr, PART: tl.constexpr,
    BLOCK_P: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(1).to(tl.int64)
    head = row * HEADS + tl.program_id(0)
    length = tl.load(lengths + row)
    start = tl.maximum(length - WINDOW, 0) // PART if WINDOW else 0
    end = tl.cdiv(length, PART)
    place = tl.arange(0, BLOCK_D)

    highest = float("-inf")
    total = 0.0
    sums = tl.zeros([BLOCK_D], tl.float32)
    for tile in range(start, end, BLOCK_P):
        part = tile + tl.arange(0, BLOCK_P)
        there = part < end
        slot = head * parts + part
        log_weight = tl.load(weight + slot, mask=there, other=float("-inf"))
        present = there[:, None] & (place < HEAD_DIM)[None, :]
        part_mixed = tl.load(partial + slot[:, None] * HEAD_DIM + place[None, :], mask=present, other=0.0)
        new_highest = tl.maximum(highest, tl.max(log_weight, 0))
        share = tl.exp2(log_weight - new_highest)
        decay = tl.exp2(highest - new_highest)
        total = total * decay + tl.sum(share, 0)
        sums = sums * decay + tl.sum(share[:, None] * part_mixed, 0)
        highest = new_highest

    result = sums / tl.where(length > 0, total, 1.0) * value_scale
    tl.store(mixed + head * HEAD_DIM + place, result.to(mixed.dtype.element_ty), mask=place < HEAD_DIM)


def decode_attention(
    queries: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    tables: torch.Tensor,
    lengths: torch.Tensor,
    scale: float,
    window: int = 0,
    key_scale: float = 1.0,
    value_scale: float = 1.0,
) -> torch.Tensor:
    """Attention of `queries` [R, Hq, D], each the last token of its row, to the row's tokens; [R, Hq, D], their dtype.

    `keys` and `values` are a layer's cache [blocks, block_size, Hk, D], alike in layout and contiguous within a block,
    in the queries' dtype or an 8-bit one (number = scale * what is stored). Row r has `lengths[r]` (int32) tokens, its
    own included, in the blocks `tables[r]` (int32 [R, B]); it sees the last `window` of them, all if that is 0. A row
    of length 0 is a dummy: zeros. What the cache holds beside the tokens that are seen is never read. Takes memory for
    the parts: 4 * R * Hq * (D + 1) bytes for each PART_TOKENS tokens that B blocks hold.
    """
    rows, heads, head_dim = queries.shape
    shape = AttentionShape.of(queries, keys, window)
    arch = architecture_of(queries.device)
    parts = triton.cdiv(tables.shape[1] * shape.block_size, PART_TOKENS)
    partial = torch.empty((rows, heads, parts, head_dim), dtype=torch.float32, device=queries.device)
    weight = torch.empty((rows, heads, parts), dtype=torch.float32, device=queries.device)
    mixed = torch.empty_like(queries)
    grid = (shape.kv_heads * triton.cdiv(shape.group, BLOCK_H), parts, rows)
    _attend_part[grid](
        queries, keys, values, tables, lengths, partial, weight,
        scale * key_scale * LOG2_E, tables.stride(0), keys.stride(0),
        **_part_constants(shape, arch), **_part_tuning(shape, arch).options,
    )  # fmt: skip
    _merge_parts[heads, rows](
        partial, weight, lengths, mixed, value_scale, parts,
        **_merge_constants(shape, arch), **tuning("decode_combine", arch).options,
    )  # fmt: skip
    return mixed


def _part_tuning(shape: AttentionShape, arch: str) -> Tuning:
    return tuning("decode_attention" if shape.head_dim <= 128 else "decode_attention_wide", arch)


def _part_constants(shape: AttentionShape, arch: str) -> dict[str, int]:
    return {**shape.constants, "PART": PART_TOKENS, "BLOCK_H": BLOCK_H, **shape.blocks(_part_tuning(shape, arch))}


def _merge_constants(shape: AttentionShape, arch: str) -> dict[str, int]:
    kept = {name: shape.constants[name] for name in ("HEADS", "HEAD_DIM", "WINDOW", "BLOCK_D")}
    return {**kept, "PART": PART_TOKENS, **tuning("decode_combine", arch).blocks}


def variants(arch: str) -> list[Variant]:
    """The models of attention_shapes.CASES, with 16-bit caches and 8-bit ones."""
    parts = [_part_variant(arch, *case) for case in typed_cases(arch)]
    return parts + [_merge_variant(arch, "bf16", shape) for shape in CASES]


def _part_variant(arch: str, dtype: str, cache: str, shape: AttentionShape) -> Variant:
    signature = {
        "queries": f"*{dtype}", "keys": f"*{cache}", "values": f"*{cache}", "tables": "*i32", "lengths": "*i32",
        "partial": "*fp32", "weight": "*fp32", "score_scale": "fp32", "table_stride": "i32", "block_stride": "i32",
    }  # fmt: skip
    return Variant(
        f"{dtype} over {cache} {shape}",
        _attend_part,
        signature,
        _part_constants(shape, arch),
        _part_tuning(shape, arch),
        dot=True,
        fp8=cache.startswith("fp8"),
        multiples_of_16=("block_stride",),
        large=("keys", "values", "partial"),
    )


def _merge_variant(arch: str, dtype: str, shape: AttentionShape) -> Variant:
    types = {"partial": "*fp32", "weight": "*fp32", "lengths": "*i32", "mixed": f"*{dtype}"}
    return Variant(
        f"{dtype} {shape}",
        _merge_parts,
        {**types, "value_scale": "fp32", "parts": "i32"},
        _merge_constants(shape, arch),
        tuning("decode_combine", arch),
        large=("partial",),
    )
