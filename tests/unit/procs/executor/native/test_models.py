"""Models on the C kernels: right within what bfloat16 rounds away, and bit for bit the same whatever is beside them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Type

from fourstroke.procs.executor.models.config import ModelConfig
from fourstroke.procs.executor.native.compute import QUERIES, obstacle, query_tiles
from fourstroke.procs.executor.native.library import Library

from .random_model import (
    EMBEDDING,
    HEAD,
    Piece,
    RandomCheckpoint,
    Rows,
    compute_all,
    model_config,
    native,
    reference,
    texts_of,
)

CONFIGS = {
    "a key head for each": model_config(2, 2),
    "three share one, biases": model_config(6, 2, attention_bias=True),
    "four, heads of 128, tied": model_config(4, 1, 128, tied_embeddings=True),
    "sixteen": model_config(16, 1),
    "heads of 256, biases, tied": model_config(3, 1, 256, attention_bias=True, tied_embeddings=True),
}
SHARED = CONFIGS["three share one, biases"]
TEXTS = texts_of(1, 17, 40, 530)
DECODED = 4

BFLOAT16 = 0.02
"""Of the length of a token's logits. The cache, the inputs of projections and the weights have 8 bits each."""


def error(ours: torch.Tensor, right: torch.Tensor) -> float:
    """The largest of any token."""
    return float(((ours - right).norm(dim=-1) / right.norm(dim=-1)).max())


@pytest.mark.parametrize("block_size", [16, 32])
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_they_compute_the_model(any_kernels: Library, config: ModelConfig, block_size: int) -> None:
    """The logits of torch in float32: of prompts, chunks behind them and decodes, within and across a segment."""
    checkpoint = RandomCheckpoint(config)
    with torch.inference_mode():
        right = compute_all(reference(checkpoint, block_size), TEXTS, 300, DECODED, block_size)
    ours = compute_all(native(any_kernels, checkpoint, block_size), TEXTS, 300, DECODED, block_size)
    for one, other in zip(ours, right, strict=True):
        assert error(one, other) < BFLOAT16


def test_a_long_context(kernels: Library) -> None:
    """Three segments of keys."""
    checkpoint, texts = RandomCheckpoint(SHARED), texts_of(1090)
    with torch.inference_mode():
        right = compute_all(reference(checkpoint), texts)
    assert error(compute_all(native(kernels, checkpoint), texts, 400)[0], right[0]) < BFLOAT16


def test_bits_whoever_shares_the_step(any_kernels: Library) -> None:
    """Alone, in any batch, in any chunks and with any number of threads."""
    checkpoint = RandomCheckpoint(SHARED)
    one_thread = native(any_kernels, checkpoint)
    alone = [compute_all(one_thread, [text])[0] for text in TEXTS]
    for threads, chunk in [(1, 1 << 20), (1, 7), (1, 100), (2, 1 << 20), (2, 16), (3, 33), (3, 513)]:
        together = compute_all(native(any_kernels, checkpoint, threads=threads), TEXTS, chunk, DECODED)
        assert all(itertools.starmap(torch.equal, zip(together, alone, strict=True))), (threads, chunk)


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_bits_of_tokens_one_by_one(kernels: Library, config: ModelConfig) -> None:
    """A decode has the bits of the same token inside of a prompt, however many heads share its key head."""
    compute, texts = native(kernels, RandomCheckpoint(config)), texts_of(60)
    assert torch.equal(compute_all(compute, texts, 1)[0], compute_all(compute, texts)[0])


@pytest.mark.parametrize("kind", [Type.Q4_0, Type.Q4_1, Type.Q8_0])
def test_bits_of_quantized_weights(any_kernels: Library, kind: Type) -> None:
    """Blocks as they are stored, in chunks and decodes, give the bits of the same weights in bfloat16."""
    checkpoint = RandomCheckpoint(SHARED, lambda _name: kind)
    as_stored = compute_all(native(any_kernels, checkpoint), TEXTS, 100, DECODED)
    dense = compute_all(native(any_kernels, checkpoint, quantization="none"), TEXTS)
    assert all(itertools.starmap(torch.equal, zip(as_stored, dense, strict=True)))


@pytest.mark.parametrize("quantization, of_layers", [("int8", Type.Q8_0), ("int4", Type.Q4_1)])
def test_bits_of_what_is_quantized_here(kernels: Library, quantization: str, of_layers: Type) -> None:
    """They are those of a checkpoint that is stored so: the embedding dense, the head in 8 bits."""
    kinds = {EMBEDDING: None, HEAD: Type.Q8_0}
    stored = RandomCheckpoint(SHARED, lambda name: kinds.get(name, of_layers))
    ours = native(kernels, RandomCheckpoint(SHARED), quantization=quantization)
    expected = compute_all(native(kernels, stored), TEXTS)
    assert all(itertools.starmap(torch.equal, zip(compute_all(ours, TEXTS), expected, strict=True)))


@pytest.mark.parametrize("quantization, most", [("int8", 0.03), ("int4", 0.4)])
def test_what_is_quantized_here_is_near(kernels: Library, quantization: str, most: float) -> None:
    """To the logits in bfloat16, and not they; random weights are the hardest for 4 bits."""
    checkpoint, texts = RandomCheckpoint(SHARED), texts_of(80)
    right = compute_all(native(kernels, checkpoint, quantization="none"), texts)[0]
    ours = compute_all(native(kernels, checkpoint, quantization=quantization), texts)[0]
    assert 0 < float((ours - right).norm() / right.norm()) < most


def test_nan_of_an_earlier_owner(any_kernels: Library) -> None:
    """What another request has left in the blocks changes no bit, behind the end of a chunk or of a text."""
    sick, texts = 74, texts_of(20, 45, vocabulary=74)
    embedding = RandomCheckpoint(SHARED).read(EMBEDDING).clone()
    embedding[sick] = torch.nan
    checkpoint = RandomCheckpoint(SHARED, changed={EMBEDDING: embedding})
    expected = compute_all(native(any_kernels, checkpoint, 32), texts, 13, 3, 32)
    compute = native(any_kernels, checkpoint, 32)
    earlier = Rows(compute, 2, 32)
    earlier.step([Piece(row, 0, (sick,) * 64) for row in range(2)])
    assert earlier.of(1).isnan().all()
    assert all(itertools.starmap(torch.equal, zip(compute_all(compute, texts, 13, 3, 32), expected, strict=True)))


@pytest.mark.parametrize("queries", [[1], [15], [16], [17], [3, 48, 1]])
def test_query_tiles(queries: list[int]) -> None:
    """They cut each row's queries into sixteens, the last row first."""
    rows, first = query_tiles(np.array(queries))
    pieces = [(row, at) for row, count in enumerate(queries) for at in range(0, count, QUERIES)]
    assert list(zip(rows.tolist(), first.tolist(), strict=True)) == pieces[::-1]


@pytest.mark.parametrize(
    "changes, block_size, word",
    [
        ({}, 8, "block size"),
        ({"head_dim": 96}, 16, "head size of 96"),
        ({"head_dim": 320}, 16, "above 256"),
        ({"hidden_size": 80}, 16, "hidden size"),
        ({"intermediate_size": 48}, 16, "feed-forward size"),
    ],
)
def test_obstacles(changes: dict[str, int], block_size: int, word: str) -> None:
    """Shapes that the kernels have no tiles for are named."""
    found = obstacle(model_config(2, 1, **changes), block_size)  # type: ignore[arg-type]
    assert found is not None and word in found
    assert obstacle(model_config(2, 1), 16) is None
