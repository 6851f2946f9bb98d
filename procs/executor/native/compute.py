"""A model on the C kernels: see compute.Compute.

The KV cache is bfloat16, the weights too or blocks of 8 and 4 bits; hidden states are float32. What is computed for a
token does not depend, bit for bit, on what else is in the step or on how its prompt was cut into chunks.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import partial

import numpy as np
import numpy.typing as npt
import torch

from ....common.errors import ResourceError
from ..batch import Batch
from ..layers.rope import rotation_angles
from ..models.config import ModelConfig
from ..verify import Indices
from ..weights.source import Weights
from ..work import ragged
from . import library
from .forms import EMBEDDING, HEAD, Product, products_of
from .library import Library
from .weights import Arena, Packed, Packer, dense

QUERIES = 16
"""Queries of a row that attention takes together."""

_TOKENS_AT_ONCE = 32
"""Scratch memory grows by so many tokens."""

_SLACK_BYTES = 64
"""The kernels read whole vectors: up to so much behind the last number, and use nothing of it."""

_MOST_INPUTS = 32768
"""Numbers in a row of a projection: MOST_INPUTS of src/matmul.c, which has room for no more and does not look."""


def obstacle(config: ModelConfig, block_size: int) -> str | None:
    """Why the kernels cannot compute such a model; None if they can."""
    sizes = {
        "block size": (block_size, 16),
        "head size": (config.head_dim, 64),
        "hidden size": (config.hidden_size, 32),
        "feed-forward size": (config.intermediate_size, 32),
    }
    for name, (size, multiple) in sizes.items():
        if size % multiple:
            return f"a {name} of {size} is no multiple of {multiple}"
    if config.head_dim > 256:
        return f"a head size of {config.head_dim} is above 256"
    widest = max(config.hidden_size, config.intermediate_size, config.heads * config.head_dim)
    return f"a projection of {widest} inputs is above {_MOST_INPUTS}" if widest > _MOST_INPUTS else None


class NativeCompute:
    """See compute.Compute."""

    def __init__(
        self,
        kernels: Library,
        config: ModelConfig,
        weights: Weights,
        *,
        num_blocks: int,
        block_size: int,
        max_positions: int,
        threads: int,
        quantization: str = "auto",
    ) -> None:
        """`max_positions` is how long a request may get, in tokens. Raises ResourceError if threads are refused."""
        self._kernels = kernels
        self._vocab_size = config.vocab_size
        self._scratch = _Scratch(config)
        self._shared_heads = config.heads // config.kv_heads
        loaded = _Loaded(Packer(kernels, weights, quantization), weights, config, threads)
        cache = _cache_memory(config, num_blocks, block_size)
        angles = rotation_angles(config, max_positions)
        cos, sin = angles.cos().contiguous(), angles.sin().contiguous()
        self._memory = (loaded, cache, cos, sin)
        self._decoder = library.Decoder(
            config.layers,
            config.hidden_size,
            config.intermediate_size,
            config.heads,
            config.kv_heads,
            config.head_dim,
            block_size,
            config.rms_norm_eps,
            loaded.layers(cache),
            cos.data_ptr(),
            sin.data_ptr(),
            loaded.embedding.data_ptr(),
            loaded.final_norm.data_ptr(),
            loaded.head.weight,
        )
        self._team = kernels.team_start(threads)
        if not self._team:
            raise ResourceError(f"{threads} threads could not be started")

    def forward(self, batch: Batch) -> torch.Tensor:
        if len(batch.begun):
            self._kernels.cache_clear(self._decoder, batch.begun.ctypes.data, len(batch.begun))
        spans, scratch = batch.spans, self._scratch
        tokens, rows = len(batch.tokens), len(spans.count)
        tile_row, tile_first = query_tiles(spans.count * self._shared_heads)
        tables = np.ascontiguousarray(spans.tables)
        hidden = torch.empty(tokens, self._decoder.hidden)
        of_tokens, of_rows = (batch.tokens, batch.positions, batch.slots), (spans.first, spans.count, spans.length)
        # Named, since copies among them must live as long as the step that points to them.
        columns = [np.ascontiguousarray(column, np.int64) for column in (*of_tokens, *of_rows)]
        step = library.Step(
            tokens,
            rows,
            len(tile_row),
            tables.shape[1],
            *(column.ctypes.data for column in columns),
            tables.ctypes.data,
            tile_row.ctypes.data,
            tile_first.ctypes.data,
            hidden.data_ptr(),
            *scratch.of(tokens),
        )
        if not self._kernels.decoder_forward(self._team, self._decoder, step):
            raise MemoryError("no memory for a step")
        return hidden

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        rows = len(hidden)
        logits = torch.empty(rows, self._vocab_size)
        if rows:
            stream, normed, *_ = self._scratch.of(rows)
            hidden = hidden.contiguous()
            pointers = (hidden.data_ptr(), stream, normed, logits.data_ptr())
            self._kernels.decoder_logits(self._team, self._decoder, rows, *pointers, self._vocab_size)
        return logits


def query_tiles(queries: Indices) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """The pieces of attention, those of the last rows first, which are the longest: their rows and first queries."""
    row, number = ragged(-(-queries // QUERIES))
    return row[::-1].astype(np.int32), (QUERIES * number[::-1]).astype(np.int32)


class _Loaded:
    """The weights, in the kernels' order."""

    def __init__(self, packer: Packer, weights: Weights, config: ModelConfig, threads: int) -> None:
        size = config.hidden_size
        embedding = packer.embedding(EMBEDDING, config.vocab_size, size)
        self.embedding = dense(embedding, torch.bfloat16)
        self.final_norm = weights.take("model.norm.weight", size).float()
        parts = [partial(_LoadedLayer, packer, weights, config, index) for index in range(config.layers)]
        self._layers = weights.in_parallel(parts, threads)
        head = embedding if config.tied_embeddings else packer.embedding(HEAD, config.vocab_size, size)
        self.head = packer.head(head)
        weights.finish(unused=(HEAD,) if config.tied_embeddings else ())

    def layers(self, cache: npt.NDArray[np.uint8]) -> ctypes.Array[library.Layer]:
        """`cache` is [layers, 2, bytes]: keys and values."""
        parts = zip(self._layers, cache, strict=True)
        return (library.Layer * len(self._layers))(*(part.struct(keys, values) for part, (keys, values) in parts))


class _LoadedLayer:
    def __init__(self, packer: Packer, weights: Weights, config: ModelConfig, index: int) -> None:
        prefix, size = f"model.layers.{index}", config.hidden_size
        query_key_value, output, gate_up, down = products_of(config, index)

        def bias(product: Product) -> Sequence[str]:
            of = [name.replace(".weight", ".bias") for name in product.names]
            return of if config.attention_bias else ()

        def norm(name: str) -> torch.Tensor:
            return weights.take(f"{prefix}.{name}.weight", size).float()

        self._query_key_value = packer.stacked(query_key_value, bias(query_key_value))
        self._output = packer.stacked(output, bias(output))
        self._gate_up = packer.gated(gate_up)
        self._down = packer.stacked(down)
        self._attention_norm, self._mlp_norm = norm("input_layernorm"), norm("post_attention_layernorm")

    def struct(self, keys: npt.NDArray[np.uint8], values: npt.NDArray[np.uint8]) -> library.Layer:
        packed: tuple[Packed, ...] = (self._query_key_value, self._output, self._gate_up, self._down)
        return library.Layer(
            *(one.weight for one in packed),
            self._attention_norm.data_ptr(),
            self._mlp_norm.data_ptr(),
            keys.ctypes.data,
            values.ctypes.data,
        )


def _cache_memory(config: ModelConfig, num_blocks: int, block_size: int) -> npt.NDArray[np.uint8]:
    """The KV cache, [layers, 2, bytes]. Memory is taken when a block is first written, not before."""
    of_layer = num_blocks * block_size * config.kv_bytes_per_token(2) // config.layers
    return Arena().take(config.layers * of_layer).reshape(config.layers, 2, -1)


class _Scratch:
    """Memory between the kernels of a step, made for the largest step so far."""

    def __init__(self, config: ModelConfig) -> None:
        query = config.heads * config.head_dim
        numbers_and_bytes = {
            "stream": (config.hidden_size, 4),
            "normed": (config.hidden_size, 2),
            "attended": (query, 2),
            "gated": (config.intermediate_size, 2),
            "queries": (query, 2),
            "mixed": (query, 2),
            "projected": (query + 2 * config.kv_heads * config.head_dim, 4),
        }
        self._bytes = [numbers * size for numbers, size in numbers_and_bytes.values()]
        self._tokens = 0
        self._arrays: list[npt.NDArray[np.uint8]] = []

    def of(self, tokens: int) -> list[int]:
        """Pointers, in the order of library.Step."""
        if tokens > self._tokens:
            self._tokens = -(-tokens // _TOKENS_AT_ONCE) * _TOKENS_AT_ONCE
            arena = Arena()
            self._arrays = [arena.take(self._tokens * size + _SLACK_BYTES) for size in self._bytes]
        return [array.ctypes.data for array in self._arrays]
