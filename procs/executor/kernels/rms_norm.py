"""Root mean square normalisation (Zhang and Sennrich 2019), with the addition of the residual stream before it.

One program a token, which holds the whole row in registers: [T, H] is read once and written once. The sum of squares
is in float32 and its order depends on H only.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from .architectures import architecture_of
from .tuning import tuning
from .variants import Variant


@triton.jit
def _rms_norm(hidden, residual, weight, normed, width, eps, RESIDUAL: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * width
    columns = tl.arange(0, BLOCK)
    inside = columns < width
    x = tl.load(hidden + row + columns, mask=inside, other=0.0)
    if RESIDUAL:
        x = (x.to(tl.float32) + tl.load(residual + row + columns, mask=inside, other=0.0).to(tl.float32)).to(x.dtype)
        tl.store(residual + row + columns, x, mask=inside)
    x = x.to(tl.float32)
    scale = tl.rsqrt(tl.sum(x * x) / width + eps)
    y = x * scale * tl.load(weight + columns, mask=inside, other=0.0).to(tl.float32)
    tl.store(normed + row + columns, y.to(normed.dtype.element_ty), mask=inside)


def rms_norm(
    hidden: torch.Tensor, weight: torch.Tensor, eps: float, residual: torch.Tensor | None = None
) -> torch.Tensor:
    """`hidden` [T, H] normalised and times `weight` [H]; contiguous, one dtype, which the result has.

    With `residual` [T, H], that becomes residual + hidden in place, rounded to its dtype, and is what is normalised.
    """
    normed = torch.empty_like(hidden)
    tokens, width = hidden.shape
    if not tokens:
        return normed
    added = residual is not None
    other = residual if residual is not None else hidden
    options = tuning("rms_norm", architecture_of(hidden.device)).options
    _rms_norm[(tokens,)](hidden, other, weight, normed, width, eps, **_constants(added, width), **options)
    return normed


def _constants(residual: bool, width: int) -> dict[str, Any]:
    return {"RESIDUAL": residual, "BLOCK": triton.next_power_of_2(width)}


def variants(arch: str) -> list[Variant]:
    """The widths of a small, an 8B and a 70B model."""
    others = [_variant(arch, dtype, 4096, True) for dtype in ("fp16", "fp32")]
    return [_variant(arch, "bf16", width, added) for width, added in _CASES] + others


_CASES = ((576, True), (4096, True), (4096, False), (8192, True))


def _variant(arch: str, dtype: str, width: int, residual: bool) -> Variant:
    pointers = dict.fromkeys(("hidden", "residual", "weight", "normed"), f"*{dtype}")
    return Variant(
        f"{dtype} H={width}{' residual' if residual else ''}",
        _rms_norm,
        {**pointers, "width": "i32", "eps": "fp32"},
        _constants(residual, width),
        tuning("rms_norm", arch),
        multiples_of_16=("width",),
    )
