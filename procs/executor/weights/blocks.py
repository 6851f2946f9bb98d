"""Matrices that are kept quantised, in the blocks of GGUF: 32 neighbours in a row share a scale.

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


def quantise(matrix: torch.Tensor, kind: Type) -> Blocks:
    """The nearest blocks to a float matrix whose rows are whole blocks."""
    return Blocks(kind, gguf.quants.quantize(matrix.float().numpy(), kind))
