"""In what form the kernels keep a checkpoint's matrices: it follows from types and shapes, before anything is read.

Projections of the same tokens are computed as one product, which has one form. weights.py obeys; sizing asks, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gguf import GGMLQuantizationType as Type

from ..models.config import ModelConfig
from ..weights.blocks import BLOCK
from ..weights.checkpoint import Checkpoint
from .library import BF16, INT4, INT8, Library

Form = Type | None
"""Blocks of a type, or bfloat16."""

EMBEDDING = "model.embed_tokens.weight"
HEAD = "lm_head.weight"

PANEL = 16
PANELS = 2
"""Outputs come in pairs of panels of 16."""

_INTO = {"int8": Type.Q8_0, "int4": Type.Q4_1}


def kept_as(stored: Form, quantization: str) -> Form:
    """The form of a matrix by itself. Blocks of 4 bits stay what they are, and with `auto` everything does."""
    if quantization == "none":
        return None
    return stored if stored in (Type.Q4_0, Type.Q4_1) else _INTO.get(quantization, stored)


def head_kept_as(stored: Form, quantization: str) -> Form:
    """That of the projection to the vocabulary: no fewer than 8 bits unless it is stored so."""
    return kept_as(stored, "int8" if quantization == "int4" else quantization)


def kept_together(forms: Sequence[Form]) -> Form:
    """The form of a product of several matrices: the first that takes all of them as they are, or nearly.

    Q4_0 fits into Q4_1 exactly; in 8 bits what has 4 is off by half a step in 127; bfloat16 takes everything.
    """
    if len(set(forms)) == 1:
        return forms[0]
    if None in forms:
        return None
    return Type.Q8_0 if Type.Q8_0 in forms else Type.Q4_1


def tile_kind(form: Form) -> int:
    """As the kernels call it."""
    if form is None:
        return BF16
    return INT8 if form == Type.Q8_0 else INT4


@dataclass(frozen=True, slots=True)
class Product:
    """Projections of the same tokens: their weights' names, [outputs, inputs] each."""

    names: tuple[str, ...]
    outputs: tuple[int, ...]
    inputs: int


def products_of(config: ModelConfig, layer: int) -> tuple[Product, Product, Product, Product]:
    """Those of a layer: query, key and value; attention's output; gate and up; down."""
    size, inner = config.hidden_size, config.intermediate_size
    query, key_value = config.heads * config.head_dim, config.kv_heads * config.head_dim

    def product(part: str, names: Sequence[str], outputs: Sequence[int], inputs: int) -> Product:
        own = tuple(f"model.layers.{layer}.{part}.{name}_proj.weight" for name in names)
        return Product(own, tuple(outputs), inputs)

    return (
        product("self_attn", "qkv", (query, key_value, key_value), size),
        product("self_attn", "o", (size,), query),
        product("mlp", ("gate", "up"), (inner, inner), size),
        product("mlp", ("down",), (size,), inner),
    )


def weight_bytes(kernels: Library, checkpoint: Checkpoint, quantization: str) -> int:
    """The memory that the loaded weights take. The embedding is there in bfloat16, and the head by itself."""
    config = checkpoint.config
    head = _type_of(checkpoint, EMBEDDING if config.tied_embeddings else HEAD)
    products = [(sum(product.outputs), product.inputs, form) for product, form in _products(checkpoint, quantization)]
    products.append((config.vocab_size, config.hidden_size, head_kept_as(head, quantization)))
    vectors = sum(shape[0] for shape in checkpoint.shapes.values() if len(shape) == 1)
    return (
        2 * config.vocab_size * config.hidden_size
        + 4 * vectors
        + sum(tile_bytes(kernels, *product) for product in products)
    )


def tile_bytes(kernels: Library, outputs: int, inputs: int, form: Form) -> int:
    """The memory of a product's tiles."""
    panels = -(-outputs // (PANELS * PANEL)) * PANELS
    return panels * (inputs // BLOCK) * int(kernels.weight_tile_bytes(tile_kind(form)))


def widened(checkpoint: Checkpoint, quantization: str) -> int:
    """How many products are computed in bfloat16 though a part of them is stored in blocks: not all of it is."""
    return sum(
        form is None and quantization != "none" and any(_type_of(checkpoint, name) for name in product.names)
        for product, form in _products(checkpoint, quantization)
    )


def _products(checkpoint: Checkpoint, quantization: str) -> Iterator[tuple[Product, Form]]:
    for layer in range(checkpoint.config.layers):
        for product in products_of(checkpoint.config, layer):
            forms = [kept_as(_type_of(checkpoint, name), quantization) for name in product.names]
            yield product, kept_together(forms)


def _type_of(checkpoint: Checkpoint, name: str) -> Form:
    """None also for what the checkpoint lacks, which is refused when it is loaded."""
    return checkpoint.block_type(name) if name in checkpoint.shapes else None
