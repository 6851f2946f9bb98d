"""Matrices in tiles multiply like the dense ones. Numbers are such that float32 holds every sum exactly."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Type

from fourstroke.procs.executor.native import library
from fourstroke.procs.executor.native.forms import Product
from fourstroke.procs.executor.native.library import Library
from fourstroke.procs.executor.native.weights import Packed, Packer
from fourstroke.procs.executor.weights.blocks import Blocks, quantize
from fourstroke.procs.executor.weights.source import Weights

from .random_model import model_config

INPUTS = 352
"""Eleven tiles: more than the kernels take at once."""

STORE, ADD, GATE = range(3)
TOKENS = (1, 5, 16, 17, 32, 33, 100, 300)

Matrix = Blocks | torch.Tensor


class Stored:
    """A checkpoint of the given tensors; see weights.checkpoint.Checkpoint."""

    config = model_config(1, 1)

    def __init__(self, **tensors: Matrix) -> None:
        self._tensors = tensors
        self.shapes = {name: tuple(_dense(tensor).shape) for name, tensor in tensors.items()}

    def read(self, name: str) -> torch.Tensor:
        return _dense(self._tensors[name])

    def block_type(self, name: str) -> Type | None:
        blocks = self.blocks(name)
        return None if blocks is None else blocks.kind

    def blocks(self, name: str) -> Blocks | None:
        tensor = self._tensors[name]
        return tensor if isinstance(tensor, Blocks) else None


def _dense(matrix: Matrix) -> torch.Tensor:
    return matrix.dense(torch.float32) if isinstance(matrix, Blocks) else matrix


def packer(kernels: Library, quantization: str = "auto", **tensors: Matrix) -> Packer:
    return Packer(kernels, Weights(Stored(**tensors), torch.bfloat16, lambda _done: None), quantization)


def product_of(**outputs: int) -> Product:
    return Product(tuple(outputs), tuple(outputs.values()), INPUTS)


def whole_numbers(seed: int, *shape: int, most: int = 8) -> torch.Tensor:
    numbers = torch.randint(-most, most + 1, shape, generator=torch.Generator().manual_seed(seed))
    return numbers.float()


def random_blocks(kind: Type, outputs: int, seed: int = 0) -> Blocks:
    """Any quantized numbers, with scales of 1/4 to 2 and, where there are any, whole minima."""
    random = np.random.default_rng(seed)
    numbers, size = gguf.GGML_QUANT_SIZES[kind]
    data = random.integers(256, size=(outputs, INPUTS // numbers, size), dtype=np.uint8)
    shape = data.shape[:2]
    data[..., :2] = (2.0 ** random.integers(-2, 2, shape)).astype(np.float16)[..., None].view(np.uint8)
    if kind == Type.Q4_1:
        data[..., 2:4] = random.integers(-8, 9, shape).astype(np.float16)[..., None].view(np.uint8)
    return Blocks(kind, data.reshape(outputs, -1))


def matrix_of(kind: Type | None, outputs: int, seed: int = 0) -> Matrix:
    return whole_numbers(seed, outputs, INPUTS) if kind is None else random_blocks(kind, outputs, seed)


class Projection(ctypes.Structure):
    """See decoder.h."""

    _fields_ = (
        ("weight", ctypes.POINTER(library.Weight)),
        ("next", ctypes.c_void_p),
        *((name, ctypes.c_int) for name in ("tokens", "epilogue", "outputs")),
        ("right", ctypes.c_void_p),
        ("out", ctypes.c_void_p),
    )


def tokens_numbers(tokens: int) -> torch.Tensor:
    """[tokens, INPUTS]"""
    return whole_numbers(99, tokens, INPUTS, most=2)


def right_side(kernels: Library, rows: torch.Tensor) -> torch.Tensor:
    """Of tokens [tokens, inputs], with NaN behind the last."""
    rows = rows.bfloat16().contiguous()
    right = torch.full((rows.numel() + 16 * rows.shape[1],), torch.nan, dtype=torch.bfloat16)
    pointers = (ctypes.c_void_p(rows.data_ptr()), ctypes.c_void_p(right.data_ptr()))
    kernels["right_side"](*rows.shape, *pointers, ctypes.byref(ctypes.c_int(0)))
    return right


def project(
    kernels: Library, packed: Packed, right: torch.Tensor, tokens: int, epilogue: int, outputs: int, out: torch.Tensor
) -> None:
    """See decoder.h."""
    counter = ctypes.c_int(0)
    weight = ctypes.pointer(packed.weight)
    of = Projection(weight, None, tokens, epilogue, outputs, right.data_ptr(), out.data_ptr())
    kernels["project"](ctypes.byref(of), 1, ctypes.byref(counter))


def projected(kernels: Library, packed: Packed, right: torch.Tensor, tokens: int, outputs: int) -> torch.Tensor:
    out = torch.full((tokens, outputs), torch.nan)
    project(kernels, packed, right, tokens, STORE, outputs, out)
    return out


def product(kernels: Library, packed: Packed, tokens: int, outputs: int) -> torch.Tensor:
    return projected(kernels, packed, right_side(kernels, tokens_numbers(tokens)), tokens, outputs)


def expected(matrix: torch.Tensor, tokens: int) -> torch.Tensor:
    return tokens_numbers(tokens) @ matrix.T


def stream_of(kernels: Library, rows: torch.Tensor) -> torch.Tensor:
    """The residual stream of tokens [tokens, size]."""
    stream = torch.full((rows.numel() + 16,), torch.nan)
    _each_block(kernels["stream_put"], rows.shape, rows.contiguous(), stream)
    return stream


def rows_of(kernels: Library, stream: torch.Tensor, tokens: int, size: int) -> torch.Tensor:
    """What stream_of was made of."""
    rows = torch.full((tokens, size), torch.nan)
    _each_block(kernels["stream_take"], rows.shape, stream, rows)
    return rows


def _each_block(function: Callable[..., None], shape: Sequence[int], source: torch.Tensor, to: torch.Tensor) -> None:
    for block in range(-(-shape[0] // 16)):
        function(*shape, ctypes.c_void_p(source.data_ptr()), ctypes.c_void_p(to.data_ptr()), block)


@pytest.mark.parametrize("outputs", [32, 75, 96 + 16])
@pytest.mark.parametrize("kind", [None, Type.Q4_0, Type.Q4_1, Type.Q8_0])
def test_products(any_kernels: Library, kind: Type | None, outputs: int) -> None:
    """Of matrices of each kind, with any number of outputs, for few rows and for many."""
    matrix = matrix_of(kind, outputs)
    packed = packer(any_kernels, m=matrix).stacked(product_of(m=outputs))
    kinds = {None: library.BF16, Type.Q8_0: library.INT8}
    assert packed.weight.kind == kinds.get(kind, library.INT4)
    for tokens in TOKENS:
        assert torch.equal(product(any_kernels, packed, tokens, outputs), expected(_dense(matrix), tokens))


def test_sums_are_added(any_kernels: Library) -> None:
    """To what is there."""
    matrix = whole_numbers(0, 96, INPUTS)
    packed = packer(any_kernels, m=matrix).stacked(product_of(m=96))
    for tokens in TOKENS:
        before = whole_numbers(7, tokens, 96)
        stream = stream_of(any_kernels, before)
        project(any_kernels, packed, right_side(any_kernels, tokens_numbers(tokens)), tokens, ADD, 96, stream)
        assert torch.equal(rows_of(any_kernels, stream, tokens, 96), before + expected(matrix, tokens))


@pytest.mark.parametrize("kinds", [(None, None), (Type.Q4_1, Type.Q4_1), (Type.Q4_0, Type.Q4_1), (None, Type.Q4_0)])
def test_stacked_projections(any_kernels: Library, kinds: tuple[Type | None, Type | None]) -> None:
    """One below the other with their biases; types that have one form in common lose nothing."""
    parts = {"a": matrix_of(kinds[0], 48, 1), "b": matrix_of(kinds[1], 33, 2)}
    biases = {"a.bias": whole_numbers(3, 48), "b.bias": whole_numbers(4, 33)}
    packed = packer(any_kernels, **parts, **biases).stacked(product_of(a=48, b=33), ["a.bias", "b.bias"])
    matrix, bias = torch.cat([*map(_dense, parts.values())]), torch.cat([*biases.values()])
    for tokens in TOKENS:
        assert torch.equal(product(any_kernels, packed, tokens, 81), expected(matrix, tokens) + bias)


def rows_of_right(kernels: Library, right: torch.Tensor, tokens: int) -> torch.Tensor:
    """A right side of 64 numbers for each token, multiplied with a matrix of ones on the diagonal."""
    packed = packer(kernels, ones=torch.eye(64)).stacked(Product(("ones",), (64,), 64))
    return projected(kernels, packed, right, tokens, 64)


@pytest.mark.parametrize("kind", [None, Type.Q4_0, Type.Q4_1, Type.Q8_0])
def test_gated_projections(any_kernels: Library, kind: Type | None) -> None:
    """Sixteen of the gate, sixteen of the other by turns; together they make silu(gate) * up."""
    gate, up = matrix_of(kind, 64, 1), matrix_of(kind, 64, 2)
    packed = packer(any_kernels, gate=gate, up=up).gated(product_of(gate=64, up=64))
    for tokens in TOKENS:
        halves = product(any_kernels, packed, tokens, 128).view(tokens, 4, 2, 16)
        of_gate, of_up = (expected(_dense(matrix), tokens) for matrix in (gate, up))
        assert torch.equal(halves[:, :, 0].flatten(1), of_gate)
        assert torch.equal(halves[:, :, 1].flatten(1), of_up)
        out = torch.full(((tokens + 16) * 64,), torch.nan, dtype=torch.bfloat16)
        right = right_side(any_kernels, tokens_numbers(tokens))
        project(any_kernels, packed, right, tokens, GATE, 64, out)
        with_up = torch.nn.functional.silu(of_gate) * of_up
        torch.testing.assert_close(rows_of_right(any_kernels, out, tokens), with_up, rtol=2**-8, atol=1e-30)


@pytest.mark.parametrize("kind", [Type.Q4_0, Type.Q4_1])
def test_blocks_of_4_beside_blocks_of_8(kernels: Library, kind: Type) -> None:
    """All become the nearest blocks of 8 bits."""
    parts = {"a": matrix_of(Type.Q8_0, 48, 1), "b": matrix_of(kind, 33, 2)}
    mixed = packer(kernels, **parts).stacked(product_of(a=48, b=33))
    nearest = parts | {"b": quantize(_dense(parts["b"]), Type.Q8_0)}
    assert np.array_equal(mixed.memory[0], packer(kernels, **nearest).stacked(product_of(a=48, b=33)).memory[0])


@pytest.mark.parametrize(
    "quantization, kind, stored_as",
    [
        ("int8", None, Type.Q8_0),
        ("int4", None, Type.Q4_1),
        ("int4", Type.Q8_0, Type.Q4_1),
        ("int8", Type.Q4_1, Type.Q4_1),
        ("int8", Type.Q4_0, Type.Q4_0),
        ("int4", Type.Q4_0, Type.Q4_0),
        ("auto", Type.Q8_0, Type.Q8_0),
        ("auto", None, None),
        ("none", Type.Q4_1, None),
    ],
)
def test_quantizing(kernels: Library, quantization: str, kind: Type | None, stored_as: Type | None) -> None:
    """What is asked for has the bits of a checkpoint that is stored so; blocks of 4 bits stay what they are."""
    matrix = matrix_of(kind, 48)
    stored = matrix if kind == stored_as else _dense(matrix)
    if stored_as is not None and not isinstance(stored, Blocks):
        stored = quantize(stored, stored_as)
    ours = packer(kernels, quantization, m=matrix).stacked(product_of(m=48))
    theirs = packer(kernels, m=stored).stacked(product_of(m=48))
    assert ours.weight.kind == theirs.weight.kind
    assert np.array_equal(ours.memory[0], theirs.memory[0])


@pytest.mark.parametrize("quantization, kind", [("int4", library.INT8), ("int8", library.INT8), ("none", library.BF16)])
def test_the_head(kernels: Library, quantization: str, kind: int) -> None:
    """It keeps 8 bits where layers have 4."""
    of_head = packer(kernels, quantization, m=whole_numbers(0, 75, INPUTS))
    assert of_head.head(of_head.embedding("m", 75, INPUTS)).weight.kind == kind
