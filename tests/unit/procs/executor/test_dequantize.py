"""Dequantizing: the types written out here are the gguf package's, to the bit; others are left to it."""

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type

from fourstroke.procs.executor.weights.dequantize import dequantize


@pytest.mark.parametrize("kind", [Type.Q4_0, Type.Q4_1, Type.Q8_0, Type.Q5_1, Type.Q6_K, Type.BF16, Type.F16, Type.F32])
def test_equals_the_package(kind: Type) -> None:
    """Real quantized data comes back as the package brings it back, in memory that may be written to."""
    if kind == Type.Q6_K:
        data = np.random.default_rng(0).integers(0, 120, 210 * 8).astype(np.uint8)
    else:
        weights = np.random.default_rng(0).normal(size=(8, 256)).astype(np.float32)
        data = gguf.quants.quantize(weights, kind).view(np.uint8).reshape(-1)
    data.flags.writeable = False
    values = dequantize(data, kind)
    assert np.array_equal(values, gguf.quants.dequantize(data, kind).reshape(-1))
    assert values.dtype == np.float32
    assert values.flags.writeable


def test_a_type_without_a_dequantizer_is_told() -> None:
    """The package's own error comes through; the checkpoint turns it into words."""
    with pytest.raises(NotImplementedError):
        dequantize(np.zeros(64, np.uint8), Type.Q8_1)
