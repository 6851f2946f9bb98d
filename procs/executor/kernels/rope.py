"""Rotary position embedding (Su et al. 2021) of queries and keys, and the writing of keys and values to the cache.

The halves of a head are rotated against each other, as Hugging Face does. One program takes a few heads of a token's
row [queries, keys, values] of heads of size D, rotates them in float32, rounds once, and stores each where its kind
belongs: queries into the result, keys and values into the paged cache, divided by their scale and saturated where the
cache is of 8-bit floats. A slot of -1 writes nothing: the padding rows of a graph.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from .architectures import architecture_of, fp8_name
from .tuning import tuning
from .variants import Variant

HEADS = 8
"""Heads of one program. Elementwise, so nothing depends on it."""


@triton.jit
def _stored(x, scale, cache, LIMIT: tl.constexpr):
    """As the cache holds it; LIMIT is its type's largest number if that is an 8-bit float, else 0."""
    if LIMIT:  # torch, and the card's conversion, would make NaN of what is too large
        x = tl.minimum(tl.maximum(tl.div_rn(x, scale), -LIMIT), LIMIT)
    return x.to(cache.dtype.element_ty)


@triton.jit
def _rotate_and_write(
    qkv, cos, sin, positions, slots, queries, keys, values,
    key_scale, value_scale,
    HQ: tl.constexpr, HK: tl.constexpr, D: tl.constexpr, HALF: tl.constexpr, HEADS: tl.constexpr, LIMIT: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    head = (tl.program_id(1) * HEADS + tl.arange(0, HEADS))[:, None]
    place = tl.arange(0, HALF)[None, :]
    inside = (head < HQ + 2 * HK) & (place < D // 2)
    source = qkv + token * ((HQ + 2 * HK) * D) + head * D + place
    left = tl.load(source, mask=inside, other=0.0).to(tl.float32)
    right = tl.load(source + D // 2, mask=inside, other=0.0).to(tl.float32)

    angle = tl.load(positions + token) * (D // 2) + place
    turns = head < HQ + HK
    c = tl.load(cos + angle, mask=place < D // 2, other=1.0)
    s = tl.load(sin + angle, mask=place < D // 2, other=0.0)
    # Rounded to the model's type before anything else: an 8-bit cache quantizes what a 16-bit one would hold.
    new_left = tl.where(turns, left * c - right * s, left).to(qkv.dtype.element_ty)
    new_right = tl.where(turns, right * c + left * s, right).to(qkv.dtype.element_ty)

    into = queries + token * (HQ * D) + head * D + place
    tl.store(into, new_left, mask=inside & (head < HQ))
    tl.store(into + D // 2, new_right, mask=inside & (head < HQ))

    slot = tl.load(slots + token)
    if slot >= 0:
        left, right = new_left.to(tl.float32), new_right.to(tl.float32)
        is_key = inside & (head >= HQ) & (head < HQ + HK)
        key_at = keys + slot * (HK * D) + (head - HQ) * D + place
        tl.store(key_at, _stored(left, key_scale, keys, LIMIT), mask=is_key)
        tl.store(key_at + D // 2, _stored(right, key_scale, keys, LIMIT), mask=is_key)
        is_value = inside & (head >= HQ + HK)
        value_at = values + slot * (HK * D) + (head - HQ - HK) * D + place
        tl.store(value_at, _stored(left, value_scale, values, LIMIT), mask=is_value)
        tl.store(value_at + D // 2, _stored(right, value_scale, values, LIMIT), mask=is_value)


def rotate_and_write(
    qkv: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    positions: torch.Tensor,
    slots: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    heads: int,
    key_scale: float = 1.0,
    value_scale: float = 1.0,
) -> torch.Tensor:
    """The rotated queries [T, heads, D] of `qkv` [T, (heads + 2 Hk) D]; keys and values go to their slots.

    `cos`, `sin` are float32 [P, D / 2], `positions` and `slots` int64 [T], `keys` and `values` the cache of a layer,
    [blocks, block_size, Hk, D], in any float type; slot s is token s % block_size of block s // block_size. The scales
    are of 8-bit caches: number = scale * what is stored. All contiguous.
    """
    tokens, kv_heads, head_dim = len(qkv), keys.shape[2], keys.shape[3]
    queries = torch.empty((tokens, heads, head_dim), dtype=qkv.dtype, device=qkv.device)
    if tokens:
        constants = _constants(heads, kv_heads, head_dim, keys.dtype)
        grid = (tokens, triton.cdiv(heads + 2 * kv_heads, HEADS))
        options = tuning("rotate_and_write", architecture_of(qkv.device)).options
        tensors = (qkv, cos, sin, positions, slots, queries, keys, values)
        _rotate_and_write[grid](*tensors, key_scale, value_scale, **constants, **options)
    return queries


def _constants(heads: int, kv_heads: int, head_dim: int, cache: torch.dtype) -> dict[str, Any]:
    return {
        "HQ": heads,
        "HK": kv_heads,
        "D": head_dim,
        "HALF": triton.next_power_of_2(head_dim // 2),
        "HEADS": HEADS,
        "LIMIT": int(torch.finfo(cache).max) if cache.itemsize == 1 else 0,  # a branch on a float does not compile
    }


def variants(arch: str) -> list[Variant]:
    """A small model's heads, an 8B one's and large ones, with 16-bit caches and 8-bit ones; of other types one each."""
    fp8 = fp8_name(arch)
    shapes = ((9, 3, 64), (32, 8, 128), (8, 4, 256))
    cases = [(dtype, cache, *shape) for dtype, cache in (("bf16", "bf16"), ("bf16", fp8)) for shape in shapes]
    return [_variant(arch, *case) for case in (*cases, ("fp16", "fp16", 32, 8, 128), ("fp32", "fp32", 32, 8, 128))]


_TORCH = {
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "fp32": torch.float32,
    "fp8e4b8": torch.float8_e4m3fnuz,
    "fp8e4nv": torch.float8_e4m3fn,
}


def _variant(arch: str, dtype: str, cache: str, heads: int, kv_heads: int, head_dim: int) -> Variant:
    types = {"qkv": f"*{dtype}", "cos": "*fp32", "sin": "*fp32", "positions": "*i64", "slots": "*i64"}
    results = {"queries": f"*{dtype}", "keys": f"*{cache}", "values": f"*{cache}"}
    return Variant(
        f"{dtype} into {cache} D={head_dim} heads={heads}/{kv_heads}",
        _rotate_and_write,
        {**types, **results, "key_scale": "fp32", "value_scale": "fp32"},
        _constants(heads, kv_heads, head_dim, _TORCH[cache]),
        tuning("rotate_and_write", arch),
        fp8=cache.startswith("fp8"),
        large=("keys", "values"),
    )
