"""Mends two things in Triton's interpreter (3.9), so that it computes what a card would.

Its conversions to narrower floats cut bf16 off and lose a carry of 8-bit ones: 1.97 becomes 1.0. And it multiplies
the bits of bf16 matrices as if they were integers.
"""

from typing import Any

import numpy as np
import torch
import triton.language as tl
from triton.runtime import interpreter

_TORCH = {
    tl.float32: (torch.float32, torch.int32),
    tl.float16: (torch.float16, torch.int16),
    tl.bfloat16: (torch.bfloat16, torch.int16),
    tl.float8e4nv: (torch.float8_e4m3fn, torch.uint8),
    tl.float8e4b8: (torch.float8_e4m3fnuz, torch.uint8),
}
_plain_convert = interpreter._convert_float
_plain_dot = interpreter.InterpreterBuilder.create_dot


def _convert(numbers: np.ndarray, source: Any, target: Any, rounding: Any) -> np.ndarray:
    """Rounded to nearest, ties to even; the bits, as unsigned integers."""
    if source not in _TORCH or target not in _TORCH:
        return _plain_convert(numbers, source, target, rounding)
    bits = torch.from_numpy(np.ascontiguousarray(numbers).view(np.dtype(f"u{numbers.dtype.itemsize}")).copy())
    (source_type, _), (target_type, target_bits) = _TORCH[source], _TORCH[target]
    converted = bits.view(source_type).to(target_type).view(target_bits).numpy()
    return converted.view(np.dtype(f"u{converted.dtype.itemsize}"))


def _dot(builder: Any, a: Any, b: Any, *rest: Any) -> Any:
    return _plain_dot(builder, _widened(a), _widened(b), *rest)


def _widened(handle: Any) -> Any:
    if handle.dtype.scalar != tl.bfloat16:
        return handle
    return interpreter.TensorHandle(_convert(handle.data, tl.bfloat16, tl.float32, None).view(np.float32), tl.float32)


def mend() -> None:
    """Replace them in the interpreter."""
    interpreter._convert_float = _convert
    interpreter.InterpreterBuilder.create_dot = _dot
