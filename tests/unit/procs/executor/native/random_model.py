"""Random models of any shape, in memory, in bfloat16 or in GGUF's blocks, and steps of theirs without a scheduler."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from gguf import GGMLQuantizationType as Type

from fourstroke.procs.executor.attention.backend import Spans
from fourstroke.procs.executor.attention.reference import ReferenceAttention
from fourstroke.procs.executor.batch import Batch
from fourstroke.procs.executor.compute import Compute, TorchCompute
from fourstroke.procs.executor.kv_cache import KvCache
from fourstroke.procs.executor.models.config import ModelConfig
from fourstroke.procs.executor.models.llama import Llama
from fourstroke.procs.executor.native.compute import NativeCompute
from fourstroke.procs.executor.native.library import Library
from fourstroke.procs.executor.weights.blocks import Blocks, quantize
from fourstroke.procs.executor.weights.source import Weights
from fourstroke.procs.executor.work import Draws, ragged

POSITIONS = 1100
NUM_BLOCKS = 160
EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"

_NONE = np.empty(0, np.int64)

Kinds = Callable[[str], Type | None]
"""The type of blocks in which a matrix is stored, by its name; None for bfloat16."""


def dense(_name: str) -> None:
    """Of a checkpoint without blocks."""


def model_config(heads: int, kv_heads: int, head_dim: int = 64, **changes: object) -> ModelConfig:
    """Three panels of hidden numbers, five of inner ones, and a vocabulary that fills no panel."""
    plain = {
        "vocab_size": 75,
        "hidden_size": 96,
        "intermediate_size": 160,
        "layers": 2,
        "heads": heads,
        "kv_heads": kv_heads,
        "head_dim": head_dim,
        "max_position": POSITIONS,
        "rms_norm_eps": 1e-5,
        "rope_theta": 1e4,
    }
    return ModelConfig(**(plain | changes))  # type: ignore[arg-type]


class RandomCheckpoint:
    """See weights.checkpoint.Checkpoint. What is stored depends on the names alone."""

    def __init__(self, config: ModelConfig, kinds: Kinds = dense, changed: Mapping[str, torch.Tensor] = {}) -> None:
        """`changed` are tensors in place of random ones."""
        self.config = config
        self.shapes = _shapes(config)
        self._kinds = kinds
        self._changed = changed

    def read(self, name: str) -> torch.Tensor:
        blocks = self.blocks(name)
        return self._numbers(name) if blocks is None else blocks.dense(torch.float32)

    def block_type(self, name: str) -> Type | None:
        return self._kinds(name) if len(self.shapes[name]) == 2 else None

    def blocks(self, name: str) -> Blocks | None:
        kind = self.block_type(name)
        return None if kind is None else quantize(self._numbers(name), kind)

    def _numbers(self, name: str) -> torch.Tensor:
        if name in self._changed:
            return self._changed[name]
        shape = self.shapes[name]
        numbers = torch.randn(shape, generator=torch.Generator().manual_seed(list(self.shapes).index(name)))
        if len(shape) == 1:
            return (numbers / 4 if name.endswith(".bias") else 1 + numbers / 10).bfloat16()
        return (numbers / math.sqrt(shape[1])).bfloat16()


def _shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    size, inner = config.hidden_size, config.intermediate_size
    query, key_value = config.heads * config.head_dim, config.kv_heads * config.head_dim
    projections = {"q": (query, size), "k": (key_value, size), "v": (key_value, size), "o": (size, query)}
    shapes: dict[str, tuple[int, ...]] = {EMBEDDING: (config.vocab_size, size), "model.norm.weight": (size,)}
    if not config.tied_embeddings:
        shapes[HEAD] = (config.vocab_size, size)
    for layer in range(config.layers):
        prefix = f"model.layers.{layer}"
        shapes |= {f"{prefix}.{name}_layernorm.weight": (size,) for name in ("input", "post_attention")}
        shapes |= {f"{prefix}.mlp.{name}_proj.weight": (inner, size) for name in ("gate", "up")}
        shapes[f"{prefix}.mlp.down_proj.weight"] = (size, inner)
        for name, shape in projections.items():
            shapes[f"{prefix}.self_attn.{name}_proj.weight"] = shape
            if config.attention_bias:
                shapes[f"{prefix}.self_attn.{name}_proj.bias"] = shape[:1]
    return shapes


def native(
    kernels: Library, checkpoint: RandomCheckpoint, block_size: int = 16, threads: int = 1, quantization: str = "auto"
) -> NativeCompute:
    """The model on the C kernels. Its threads end with the test session."""
    weights = Weights(checkpoint, torch.bfloat16, lambda _done: None)
    return NativeCompute(
        kernels,
        checkpoint.config,
        weights,
        num_blocks=NUM_BLOCKS,
        block_size=block_size,
        max_positions=POSITIONS,
        threads=threads,
        quantization=quantization,
    )


def reference(checkpoint: RandomCheckpoint, block_size: int = 16) -> TorchCompute:
    """The same in float32, by torch and the textbook's attention."""
    model = Llama(checkpoint.config, Weights(checkpoint, torch.float32, lambda _done: None), POSITIONS, 1)
    return TorchCompute(model, KvCache(checkpoint.config, NUM_BLOCKS, block_size, torch.float32), ReferenceAttention)


@dataclass(frozen=True, slots=True)
class Piece:
    """What a row does in a step: its tokens from `start` on."""

    row: int
    start: int
    tokens: tuple[int, ...]


class Rows:
    """Steps of some rows, which have scattered blocks, and what has come out of these steps."""

    def __init__(self, compute: Compute, rows: int, block_size: int = 16) -> None:
        self._compute = compute
        self._block_size = block_size
        blocks = np.random.default_rng(0).permutation(NUM_BLOCKS)[: NUM_BLOCKS // rows * rows]
        self._tables = blocks.reshape(rows, -1).astype(np.int32)
        self.logits: list[list[torch.Tensor]] = [[] for _ in range(rows)]
        """Of each row those of its tokens, in order."""

    @torch.inference_mode()
    def step(self, pieces: Sequence[Piece]) -> None:
        """Decodes must come first, as batch.py has them."""
        logits = self._compute.logits(self._compute.forward(self._batch(pieces))).float()
        for piece, part in zip(pieces, logits.split([len(piece.tokens) for piece in pieces]), strict=True):
            self.logits[piece.row] += part.clone()

    def of(self, row: int) -> torch.Tensor:
        """[tokens, vocabulary]"""
        return torch.stack(self.logits[row])

    def _batch(self, pieces: Sequence[Piece]) -> Batch:
        size = self._block_size
        start = np.array([piece.start for piece in pieces])
        count = np.array([len(piece.tokens) for piece in pieces])
        tables = self._tables[[piece.row for piece in pieces]]
        owner, within = ragged(count)
        positions = start[owner] + within
        last = (start + count - 1) // size
        begun = np.flatnonzero((last * size >= start) & ((start + count) % size != 0))
        return Batch(
            tokens=np.array([token for piece in pieces for token in piece.tokens]),
            positions=positions,
            slots=tables[owner, positions // size].astype(np.int64) * size + positions % size,
            begun=tables[begun, last[begun]].astype(np.int64),
            spans=Spans(np.cumsum(count) - count, count, start + count, tables, size),
            draws=Draws(*[_NONE] * 5),
            given=_NONE,
            following=_NONE,
            order=_NONE,
            rows=_NONE,
            drafts=_NONE,
        )


def compute_all(
    compute: Compute, texts: Sequence[Sequence[int]], chunk: int = 1 << 20, decoded: int = 0, block_size: int = 16
) -> list[torch.Tensor]:
    """Logits of each text's tokens: chunks of all side by side, and the last `decoded` tokens one in a step."""
    rows = Rows(compute, len(texts), block_size)
    done = [0] * len(texts)
    while any(done[row] < len(text) for row, text in enumerate(texts)):
        pieces = []
        for row, text in enumerate(texts):
            whole = max(1, len(text) - decoded)
            end = min(done[row] + chunk, whole) if done[row] < whole else done[row] + 1
            if done[row] < len(text):
                pieces.append(Piece(row, done[row], tuple(text[done[row] : end])))
                done[row] = end
        rows.step(sorted(pieces, key=lambda piece: (len(piece.tokens) > 1, piece.start)))
    return [rows.of(row) for row in range(len(texts))]


def texts_of(*lengths: int, vocabulary: int = 75) -> list[list[int]]:
    """Random tokens, the same for the same lengths."""
    random = np.random.default_rng(3)
    return [random.integers(vocabulary, size=length).tolist() for length in lengths]
