"""Two small kernels to try the compiler on: one that multiplies matrices, one that adds."""

from __future__ import annotations

import triton
import triton.language as tl

from fourstroke.procs.executor.kernels.tuning import Tuning
from fourstroke.procs.executor.kernels.variants import Variant


@triton.jit
def product(a, b, c, rows, k, B: tl.constexpr):
    """c = a @ b.T in tiles of B."""
    row = tl.program_id(0) * B + tl.arange(0, B)
    column = tl.program_id(1) * B + tl.arange(0, B)
    inner = tl.arange(0, B)
    total = tl.zeros((B, B), tl.float32)
    for start in range(0, k, B):
        left = tl.load(a + row[:, None] * k + start + inner[None, :], mask=row[:, None] < rows, other=0.0)
        right = tl.load(b + column[:, None] * k + start + inner[None, :])
        total = tl.dot(left, tl.trans(right), total)
    tl.store(c + row[:, None] * k + column[None, :], total, mask=row[:, None] < rows)


@triton.jit
def add(a, b, count, B: tl.constexpr):
    """b += a."""
    at = tl.program_id(0) * B + tl.arange(0, B)
    there = at < count
    tl.store(b + at, tl.load(a + at, mask=there) + tl.load(b + at, mask=there), mask=there)


def variants(arch: str) -> list[Variant]:
    """What would be compiled of these, if this were a kernel's file."""
    return [
        Variant(
            "bf16",
            product,
            {"a": "*bf16", "b": "*bf16", "c": "*fp32", "rows": "i32", "k": "i32"},
            {"B": 64},
            Tuning(num_warps=4, num_stages=2),
            dot=True,
            multiples_of_16=("k",),
            large=("b",),
        ),
        Variant("f32", add, {"a": "*fp32", "b": "*fp32", "count": "i32"}, {"B": 1024}),
    ]
