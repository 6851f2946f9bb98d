"""Matrices that are kept quantized, in the blocks of GGUF: 32 neighbours in a row share a scale.

Layouts: ggml-common.h of llama.cpp. Files have such blocks; others are made of float weights by the `gguf` package.
"""

from __future__ import annotations

from dataclasses import dataclass

import gguf
import numpy as np
import numpy.typing as npt
import torch
from gguf import GGMLQuantizationType as Type

from .dequantize import dequantize

BLOCK = 32
"""Numbers of a row in a block."""

KINDS = (Type.Q4_0, Type.Q4_1, Type.Q8_0)
"""The types of blocks that are computed with as they are."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """A matrix. `data` is uint8 [rows, bytes of a row's blocks]."""

    kind: Type
    data: npt.NDArray[np.uint8]

    @property
    def columns(self) -> int:
        """Numbers in a row."""
        numbers, size = gguf.GGML_QUANT_SIZES[self.kind]
        return int(self.data.shape[1] // size * numbers)

    def dense(self, dtype: torch.dtype) -> torch.Tensor:
        """The matrix itself, [rows, columns]."""
        return torch.from_numpy(dequantize(self.data, self.kind).reshape(len(self.data), -1)).to(dtype)


def quantize(matrix: torch.Tensor, kind: Type) -> Blocks:
    """The nearest blocks to a float matrix whose rows are whole blocks."""
    return Blocks(kind, gguf.quants.quantize(matrix.float().numpy(), kind))


def converted(matrix: Blocks | torch.Tensor, kind: Type) -> Blocks:
    """The same numbers, or the nearest, in blocks of this type. Q4_1 has all numbers of Q4_0."""
    if isinstance(matrix, torch.Tensor):
        return quantize(matrix, kind)
    if matrix.kind == kind:
        return matrix
    if (matrix.kind, kind) == (Type.Q4_0, Type.Q4_1):
        return Blocks(kind, _with_minima(matrix.data))
    return quantize(matrix.dense(torch.float32), kind)


def _with_minima(data: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Q4_0 to Q4_1: a number is d (q - 8) in the one, d q + m in the other. Rows of blocks."""
    blocks = data.reshape(len(data), -1, 18)
    scales = np.ascontiguousarray(blocks[..., :2])
    minima = (scales.view(np.float16) * np.float16(-8)).view(np.uint8)
    return np.concatenate((scales, minima, blocks[..., 2:]), axis=-1).reshape(len(data), -1)
