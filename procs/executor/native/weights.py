"""From a checkpoint's matrices to tiles for the C kernels (src/weights.h).

Matrices that are multiplied with the same tokens become one. What a checkpoint stores as blocks of 4 or 8 bits stays so
if the quantisation says `auto`; `int8` and `int4` quantise what is stored otherwise, and `none` computes with bfloat16.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from gguf import GGMLQuantizationType as Type

from ..weights.blocks import BLOCK, Blocks, quantise
from ..weights.source import Weights
from .library import BF16, INT4, INT8, Library, Weight

_PANELS = 32
"""Outputs come in pairs of panels of 16."""

_ALIGNMENT = 64
"""Of the processor's cache lines: a row of a tile fills one."""

_PIECE = 32 << 20
"""Bytes of memory that are asked for at once."""

_INTO = {"int8": Type.Q8_0, "int4": Type.Q4_1}

Matrix = Blocks | torch.Tensor


@dataclass(frozen=True, slots=True)
class Packed:
    """A projection for the kernels, and the memory that it points to."""

    weight: Weight
    memory: tuple[npt.NDArray[np.generic], ...]


class Packer:
    """Takes matrices out of a checkpoint by name, in the form in which `quantization` wants them."""

    def __init__(self, library: Library, weights: Weights, quantization: str) -> None:
        self._library = library
        self._weights = weights
        self._quantization = quantization
        self._arena = Arena()

    def stacked(self, names: Sequence[str], outputs: Sequence[int], inputs: int, bias: Sequence[str] = ()) -> Packed:
        """Projections of the same tokens, one below the other; each may have a bias."""
        parts = [self._take(name, rows, inputs) for name, rows in zip(names, outputs, strict=True)]
        biases = [self._weights.take(name, rows) for name, rows in zip(bias, outputs, strict=False)]
        return self._pack(_stack(parts), torch.cat(biases) if biases else None)

    def gated(self, gate: str, up: str, outputs: int, inputs: int) -> Packed:
        """Two projections of the same tokens, 16 rows of each by turns; `outputs` is a multiple of 16."""
        both = _stack([self._take(gate, outputs, inputs), self._take(up, outputs, inputs)])
        order = np.arange(2 * outputs).reshape(2, -1, 16).swapaxes(0, 1).reshape(-1)
        return self._pack(_rows(both, order))

    def embedding(self, name: str, tokens: int, size: int) -> Matrix:
        """The embedding as it is stored, which may be the head's matrix too."""
        return self._take_as(None, name, tokens, size)

    def head(self, matrix: Matrix) -> Packed:
        """The projection to the vocabulary, with no fewer than 8 bits unless it is stored so."""
        into = "int8" if self._quantization == "int4" else self._quantization
        return self._pack(_convert(matrix, _INTO.get(into)))

    def _take(self, name: str, outputs: int, inputs: int) -> Matrix:
        return self._take_as(_INTO.get(self._quantization), name, outputs, inputs)

    def _take_as(self, kind: Type | None, name: str, outputs: int, inputs: int) -> Matrix:
        if self._quantization == "none":
            return self._weights.take(name, outputs, inputs)
        return _convert(self._weights.take_as_stored(name, outputs, inputs), kind)

    def _pack(self, matrix: Matrix, bias: torch.Tensor | None = None) -> Packed:
        rows, inputs = _shape(matrix)
        kind, outputs = _kind(matrix), -(-rows // _PANELS) * _PANELS
        tiles = self._arena.take(outputs // 16 * (inputs // BLOCK) * self._library.weight_tile_bytes(kind))
        if isinstance(matrix, Blocks):
            data = np.zeros((outputs, matrix.data.shape[1]), np.uint8)
            data[:rows] = matrix.data
            self._library.weight_pack_gguf(matrix.kind, data.ctypes.data, outputs, inputs, tiles.ctypes.data)
        else:
            numbers = torch.zeros(outputs, inputs, dtype=torch.bfloat16)
            numbers[:rows] = matrix
            self._library.weight_pack_bf16(numbers.data_ptr(), outputs, inputs, tiles.ctypes.data)
        if bias is None:
            return Packed(Weight(kind, outputs, inputs, tiles.ctypes.data, None), (tiles,))
        padded = np.zeros(outputs, np.float32)
        padded[:rows] = bias.float().numpy()
        return Packed(Weight(kind, outputs, inputs, tiles.ctypes.data, padded.ctypes.data), (tiles, padded))


class Arena:
    """Memory in large pieces, cut at cache lines; pages are taken when they are written. Threads may share it.

    numpy asks the kernel for huge pages where an array is large. In pages of 4 KiB, in a virtual machine, a third of
    the time of a product with few rows is spent on finding its weights.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._left = np.zeros(0, np.uint8)

    def take(self, size: int) -> npt.NDArray[np.uint8]:
        """Zeros."""
        with self._lock:
            if size > len(self._left):
                memory = np.zeros(max(size, _PIECE) + _ALIGNMENT, np.uint8)
                self._left = memory[-memory.ctypes.data % _ALIGNMENT :]
            taken = self._left[:size]
            self._left = self._left[-(-size // _ALIGNMENT) * _ALIGNMENT :]
            return taken


def _shape(matrix: Matrix) -> tuple[int, int]:
    """Outputs and inputs."""
    if isinstance(matrix, torch.Tensor):
        return matrix.shape[0], matrix.shape[1]
    return len(matrix.data), matrix.columns


def _kind(matrix: Matrix) -> int:
    if isinstance(matrix, torch.Tensor):
        return BF16
    return INT8 if matrix.kind == Type.Q8_0 else INT4


def _convert(matrix: Matrix, wanted: Type | None) -> Matrix:
    """Blocks of 4 bits stay what they are, and without a wish everything does."""
    if wanted is None or _kind(matrix) == INT4 or (isinstance(matrix, Blocks) and matrix.kind == wanted):
        return matrix
    return quantise(dense(matrix, torch.float32), wanted)


def dense(matrix: Matrix, dtype: torch.dtype) -> torch.Tensor:
    """The numbers themselves, [outputs, inputs]."""
    return matrix.dense(dtype) if isinstance(matrix, Blocks) else matrix.to(dtype)


def _stack(parts: Sequence[Matrix]) -> Matrix:
    """One below the other; in bfloat16 if their blocks are of different types."""
    blocks = [part for part in parts if isinstance(part, Blocks)]
    if len(blocks) == len(parts) and len({part.kind for part in blocks}) == 1:
        return Blocks(blocks[0].kind, np.concatenate([part.data for part in blocks]))
    return torch.cat([dense(part, torch.bfloat16) for part in parts])


def _rows(matrix: Matrix, order: npt.NDArray[np.int64]) -> Matrix:
    if isinstance(matrix, Blocks):
        return Blocks(matrix.kind, matrix.data[order])
    return matrix[torch.from_numpy(order)]
