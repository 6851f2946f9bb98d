"""From a checkpoint's matrices to tiles for the C kernels (src/weights.h).

Matrices that are multiplied with the same tokens become one; in which form, forms.py says.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from ..weights.blocks import Blocks, converted
from ..weights.source import Weights
from .forms import PANEL, PANELS, Form, Product, head_kept_as, kept_as, kept_together, tile_bytes, tile_kind
from .library import Library, Weight

_ALIGNMENT = 64
"""Of the processor's cache lines: a row of a tile fills one."""

_PIECE = 32 << 20
"""Bytes of memory that are asked for at once."""

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

    def stacked(self, product: Product, bias: Sequence[str] = ()) -> Packed:
        """The projections one below the other; each may have a bias."""
        biases = [self._weights.take(name, rows) for name, rows in zip(bias, product.outputs, strict=False)]
        return self._pack(self._take(product), torch.cat(biases) if biases else None)

    def gated(self, product: Product) -> Packed:
        """Two projections, 16 rows of each by turns; they have equally many, a multiple of 16."""
        order = np.arange(sum(product.outputs)).reshape(2, -1, PANEL).swapaxes(0, 1).reshape(-1)
        return self._pack(_rows(self._take(product), order))

    def embedding(self, name: str, tokens: int, size: int) -> Matrix:
        """The embedding as it is stored, which may be the head's matrix too."""
        return self._weights.take_as_stored(name, tokens, size)

    def head(self, matrix: Matrix) -> Packed:
        """The projection to the vocabulary."""
        return self._pack(_convert(matrix, head_kept_as(_form(matrix), self._quantization)))

    def _take(self, product: Product) -> Matrix:
        """The projections, one below the other, in the form that they have together."""
        named = zip(product.names, product.outputs, strict=True)
        stored = [self._weights.take_as_stored(name, rows, product.inputs) for name, rows in named]
        form = kept_together([kept_as(_form(matrix), self._quantization) for matrix in stored])
        return _stack([_convert(matrix, form) for matrix in stored], form)

    def _pack(self, matrix: Matrix, bias: torch.Tensor | None = None) -> Packed:
        rows, inputs = _shape(matrix)
        kind, outputs = tile_kind(_form(matrix)), -(-rows // (PANELS * PANEL)) * PANELS * PANEL
        tiles = self._arena.take(tile_bytes(self._library, rows, inputs, _form(matrix)))
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


def _form(matrix: Matrix) -> Form:
    return matrix.kind if isinstance(matrix, Blocks) else None


def _convert(matrix: Matrix, form: Form) -> Matrix:
    return dense(matrix, torch.bfloat16) if form is None else converted(matrix, form)


def dense(matrix: Matrix, dtype: torch.dtype) -> torch.Tensor:
    """The numbers themselves, [outputs, inputs]."""
    return matrix.dense(dtype) if isinstance(matrix, Blocks) else matrix.to(dtype)


def _stack(parts: Sequence[Matrix], form: Form) -> Matrix:
    """Matrices of one form, one below the other."""
    if form is None:
        return torch.cat([part for part in parts if isinstance(part, torch.Tensor)])
    return Blocks(form, np.concatenate([part.data for part in parts if isinstance(part, Blocks)]))


def _rows(matrix: Matrix, order: npt.NDArray[np.int64]) -> Matrix:
    if isinstance(matrix, Blocks):
        return Blocks(matrix.kind, matrix.data[order])
    return matrix[torch.from_numpy(order)]
