"""The middle of a SwiGLU block (Shazeer 2020): silu(gate) * up, of the two halves of each row.

One program a block of columns of one token; elementwise, so nothing depends on the block's size.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from .architectures import architecture_of
from .tuning import tuning
from .variants import Variant


@triton.jit
def _silu_mul(gate_up, product, width, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < width
    gate = tl.load(gate_up + row * 2 * width + columns, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(gate_up + row * 2 * width + width + columns, mask=inside, other=0.0).to(tl.float32)
    y = gate / (1.0 + tl.exp(-gate)) * up
    tl.store(product + row * width + columns, y.to(product.dtype.element_ty), mask=inside)


def silu_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """[T, F] from [T, 2F], contiguous: the gate's columns stand first, then up's. Computed in float32, rounded once."""
    tokens, width = gate_up.shape[0], gate_up.shape[1] // 2
    product = torch.empty((tokens, width), dtype=gate_up.dtype, device=gate_up.device)
    if tokens:
        how = tuning("silu_mul", architecture_of(gate_up.device))
        grid = (tokens, triton.cdiv(width, how.blocks["BLOCK"]))
        _silu_mul[grid](gate_up, product, width, **how.blocks, **how.options)
    return product


def variants(arch: str) -> list[Variant]:
    how = tuning("silu_mul", arch)
    return [
        Variant(
            dtype,
            _silu_mul,
            {"gate_up": f"*{dtype}", "product": f"*{dtype}", "width": "i32"},
            dict(how.blocks),
            how,
            multiples_of_16=("width",),
        )
        for dtype in ("bf16", "fp16", "fp32")
    ]
