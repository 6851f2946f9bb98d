"""Matrix products whose rows are the same bits alone and in any batch: a [M, K] times the transpose of a weight [N, K].

A library chooses tiles by M, and splits K when M is small, so that a row's sum is added in another order. Here a tile
has one size, whatever M is, and goes through K from its start to its end; a result depends on its own row and column
only. M is not specialised either: one binary serves all batches. Rows and columns beyond the edge of a tile repeat
the last one and are not stored.

The weight may be of 8-bit floats (OCP e4m3fn, or e4m3fnuz on gfx942), with a scale for each of its rows. If the
activations are, too, and the card's matrix units take that type, they multiply it as it is; else numbers are widened to
16 bits in registers, which is exact.

Programs are numbered in groups of GROUP tiles of M, so that those that run at once share tiles in the L2 (Triton's
tutorial 03, "L2 cache optimizations").
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from .architectures import ARCHITECTURES, TRITON_FP8, architecture_of, fp8_name
from .tuning import Tuning, tuning
from .variants import Variant

GROUP = 8


@triton.jit
def _tile(M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP: tl.constexpr):
    """The first row and the first column of a program's tile."""
    program = tl.program_id(0)
    high, wide = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    first = program // (GROUP * wide) * GROUP
    size = tl.minimum(high - first, GROUP)
    inside = program % (GROUP * wide)
    return (first + inside % size) * BLOCK_M, inside // size * BLOCK_N


@triton.jit
def _products(
    a, weight, row, column, K, a_stride, weight_stride,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, EVEN_K: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    """The tile's sums, float32 [BLOCK_M, BLOCK_N]; `row` [BLOCK_M] and `column` [BLOCK_N] count from its first ones,
    where `a` and `weight` point. WIDEN: activations of 8 bits become f16 before they are multiplied.

    Offsets have 32 bits, on a base of 64 that all lanes share: a weight may have more than 2^31 numbers.
    """
    k = tl.arange(0, BLOCK_K)
    left, right = row[:, None] * a_stride + k[None, :], column[None, :] * weight_stride + k[:, None]
    sums = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        if EVEN_K:
            x, w = tl.load(a + left), tl.load(weight + right)
        else:
            x = tl.load(a + left, mask=k[None, :] < K - start, other=0.0)
            w = tl.load(weight + right, mask=k[:, None] < K - start, other=0.0)
        if WIDEN:
            x = x.to(tl.float16)
        sums = tl.dot(x, w.to(x.dtype), sums, input_precision="ieee")
        a += BLOCK_K
        weight += BLOCK_K
    return sums


@triton.jit
def _store(
    out, sums, bias, rows, columns, out_stride, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BIAS: tl.constexpr
):  # fmt: skip
    """Store so many rows and columns of a tile; `out` and `bias` point at its first ones."""
    row, column = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N)
    if BIAS:
        sums += tl.load(bias + column, mask=column < columns, other=0.0).to(tl.float32)[None, :]
    inside = (row < rows)[:, None] & (column < columns)[None, :]
    tl.store(out + row[:, None] * out_stride + column[None, :], sums.to(out.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["M"])
def _matmul(
    a, weight, bias, out, M, N, K, a_stride, weight_stride,
    BIAS: tl.constexpr, EVEN_K: tl.constexpr, GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    first_row, first_column = _tile(M, N, BLOCK_M, BLOCK_N, GROUP)
    rows, columns = M - first_row, N - first_column
    row, column = tl.minimum(tl.arange(0, BLOCK_M), rows - 1), tl.minimum(tl.arange(0, BLOCK_N), columns - 1)
    a += first_row.to(tl.int64) * a_stride
    weight += first_column.to(tl.int64) * weight_stride
    sums = _products(
        a, weight, row, column, K, a_stride, weight_stride, BLOCK_M, BLOCK_N, BLOCK_K, EVEN_K, False
    )  # fmt: skip
    out += first_row.to(tl.int64) * N + first_column
    _store(out, sums, bias + first_column, rows, columns, N, BLOCK_M, BLOCK_N, BIAS)


@triton.jit(do_not_specialize=["M", "scale_stride"])
def _scaled_matmul(
    a, weight, bias, out, a_scales, a_scale, weight_scale, M, N, K, a_stride, weight_stride, scale_stride,
    SCALES: tl.constexpr, WIDEN: tl.constexpr, BIAS: tl.constexpr, EVEN_K: tl.constexpr, GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    first_row, first_column = _tile(M, N, BLOCK_M, BLOCK_N, GROUP)
    rows, columns = M - first_row, N - first_column
    row, column = tl.minimum(tl.arange(0, BLOCK_M), rows - 1), tl.minimum(tl.arange(0, BLOCK_N), columns - 1)
    a += first_row.to(tl.int64) * a_stride
    weight += first_column.to(tl.int64) * weight_stride
    sums = _products(
        a, weight, row, column, K, a_stride, weight_stride, BLOCK_M, BLOCK_N, BLOCK_K, EVEN_K, WIDEN
    )  # fmt: skip
    if SCALES:
        sums *= tl.load(a_scales + (first_row + row) * scale_stride)[:, None]
    else:
        sums *= a_scale
    sums *= tl.load(weight_scale + first_column + column)[None, :]
    out += first_row.to(tl.int64) * N + first_column
    _store(out, sums, bias + first_column, rows, columns, N, BLOCK_M, BLOCK_N, BIAS)


def matmul(a: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """[M, N] from `a` [M, K] and `weight` [N, K], both bf16, f16 or f32, and maybe `bias` [N]; sums in float32.

    The last dimensions are contiguous. float32 is multiplied as such, not as TF32.
    """
    out = torch.empty((len(a), len(weight)), dtype=a.dtype, device=a.device)
    if len(a):
        how = tuning("matmul", architecture_of(a.device))
        sizes = (*out.shape, a.shape[1], a.stride(0), weight.stride(0))
        constants = _constants(how, a.shape[1], bias is not None)
        _matmul[_grid(how, out)](a, weight, weight if bias is None else bias, out, *sizes, **constants, **how.options)
    return out


def scaled_matmul(
    a: torch.Tensor,
    weight: torch.Tensor,
    a_scale: torch.Tensor | float,
    weight_scale: torch.Tensor,
    bias: torch.Tensor | None = None,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """[M, N] of (a * a_scale) times the transpose of (weight * weight_scale), in `dtype`.

    `weight` [N, K] is of 8-bit floats; `a` [M, K] of the same ones or bf16 or f16. `a_scale` is a number or float32 [M]
    or [1], `weight_scale` float32 [N]. Without `dtype` the result has that of `a`, or bf16 if that is of 8 bits.
    """
    narrow = a.dtype.itemsize == 1
    out_dtype = dtype or (torch.bfloat16 if narrow else a.dtype)
    out = torch.empty((len(a), len(weight)), dtype=out_dtype, device=a.device)
    if not len(a):
        return out
    arch = architecture_of(a.device)
    how = tuning("scaled_matmul", arch)
    many = isinstance(a_scale, torch.Tensor)
    scales = (a_scale, 1.0) if many else (weight_scale, a_scale)
    scale_stride = int(isinstance(a_scale, torch.Tensor) and a_scale.numel() > 1)
    sizes = (*out.shape, a.shape[1], a.stride(0), weight.stride(0), scale_stride)
    constants = _constants(how, a.shape[1], bias is not None)
    constants |= {"SCALES": many, "WIDEN": narrow and not _multiplies(arch, a.dtype)}
    tensors = (a, weight, weight_scale if bias is None else bias, out)
    _scaled_matmul[_grid(how, out)](*tensors, *scales, weight_scale, *sizes, **constants, **how.options)
    return out


def _multiplies(arch: str, dtype: torch.dtype) -> bool:
    """Whether the architecture's matrix units take this 8-bit float."""
    known = ARCHITECTURES.get(arch)
    return known is not None and known.fp8 is not None and TRITON_FP8[known.fp8] == dtype


def _grid(how: Tuning, out: torch.Tensor) -> tuple[int]:
    rows, columns = out.shape
    return (triton.cdiv(rows, how.blocks["BLOCK_M"]) * triton.cdiv(columns, how.blocks["BLOCK_N"]),)


def _constants(how: Tuning, k: int, bias: bool) -> dict[str, Any]:
    return {"BIAS": bias, "EVEN_K": k % how.blocks["BLOCK_K"] == 0, "GROUP": GROUP, **how.blocks}


def variants(arch: str) -> list[Variant]:
    """Plain products of each type, with a bias and with a K that is no multiple of the tile; 8-bit weights with each
    type of activations."""
    plain = [_plain(arch, dtype, bias, even) for dtype in ("bf16", "fp32") for bias, even in _CASES]
    fp8 = fp8_name(arch)
    scaled = (("bf16", False), ("fp16", False), (fp8, True))
    return [*plain, _plain(arch, "fp16", False, True), *(_scaled(arch, dtype, fp8, scales) for dtype, scales in scaled)]


_CASES = ((False, True), (True, True), (False, False))
_SIZES = dict.fromkeys(("M", "N", "K", "a_stride", "weight_stride"), "i32")


def _plain(arch: str, dtype: str, bias: bool, even: bool) -> Variant:
    how = tuning("matmul", arch)
    known = ARCHITECTURES.get(arch)
    return Variant(
        f"{dtype}{' bias' if bias else ''}{'' if even else ' odd K'}",
        _matmul,
        {**dict.fromkeys(("a", "weight", "bias", "out"), f"*{dtype}"), **_SIZES},
        _constants(how, 0 if even else 1, bias),
        how,
        # WMMA, which the architectures with waves of 32 have, takes no float32.
        dot=dtype != "fp32" or (known is not None and known.wave == 64),
        multiples_of_16=("N", "K", "a_stride", "weight_stride") if even else ("N",),
        large=("weight",),
    )


def _scaled(arch: str, dtype: str, fp8: str, scales: bool) -> Variant:
    how = tuning("scaled_matmul", arch)
    narrow = dtype == fp8
    native = _multiplies(arch, TRITON_FP8[fp8])
    out = "bf16" if narrow else dtype
    pointers = {"a": f"*{dtype}", "weight": f"*{fp8}", "bias": f"*{out}", "out": f"*{out}"}
    numbers = {"a_scales": "*fp32", "a_scale": "fp32", "weight_scale": "*fp32"}
    return Variant(
        f"{dtype} by {fp8}{' scale a row' if scales else ''}",
        _scaled_matmul,
        {**pointers, **numbers, **_SIZES, "scale_stride": "i32"},
        _constants(how, 0, True) | {"SCALES": scales, "WIDEN": narrow and not native},
        how,
        dot=True,
        fp8=True,
        fp8_dot=narrow,
        multiples_of_16=("N", "K", "a_stride", "weight_stride"),
        large=("weight",),
    )
