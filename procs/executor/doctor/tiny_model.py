"""A small model with random weights, and two steps of it, to test kernels that compute whole models."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import torch

from ..attention.backend import Spans
from ..attention.reference import ReferenceAttention
from ..batch import Batch
from ..compute import Compute, TorchCompute
from ..kv_cache import KvCache
from ..models.config import ModelConfig
from ..models.llama import Llama
from ..weights.source import Weights
from ..work import Draws, ragged

CONFIG = ModelConfig(
    vocab_size=320,
    hidden_size=256,
    intermediate_size=384,
    layers=2,
    heads=4,
    kv_heads=2,
    head_dim=64,
    max_position=128,
    rms_norm_eps=1e-5,
    rope_theta=1e4,
)
BLOCK_SIZE, NUM_BLOCKS = 16, 32

_PROMPTS = np.array((1, 16, 40, 70))
_NEXT = np.array((1, 1, 1, 20))
"""Tokens of each row in the first step and in the second: three decodes, and a chunk behind a cached prefix."""

_NONE: npt.NDArray[np.int64] = np.empty(0, np.int64)


class RandomCheckpoint:
    """See weights.checkpoint.Checkpoint. Numbers are rounded to bfloat16, and such that results stay near 1."""

    config = CONFIG

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        size, inner = CONFIG.hidden_size, CONFIG.intermediate_size
        query, key_value = CONFIG.heads * CONFIG.head_dim, CONFIG.kv_heads * CONFIG.head_dim
        of_layer = {
            "input_layernorm": (size,),
            "self_attn.q_proj": (query, size),
            "self_attn.k_proj": (key_value, size),
            "self_attn.v_proj": (key_value, size),
            "self_attn.o_proj": (size, query),
            "post_attention_layernorm": (size,),
            "mlp.gate_proj": (inner, size),
            "mlp.up_proj": (inner, size),
            "mlp.down_proj": (size, inner),
        }
        layers = {
            f"model.layers.{index}.{name}.weight": shape
            for index in range(CONFIG.layers)
            for name, shape in of_layer.items()
        }
        ends = {"model.embed_tokens.weight": (CONFIG.vocab_size, size), "lm_head.weight": (CONFIG.vocab_size, size)}
        return {**layers, **ends, "model.norm.weight": (size,)}

    def read(self, name: str) -> torch.Tensor:
        shape = self.shapes[name]
        seed = list(self.shapes).index(name)
        numbers = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
        scaled = 1 + numbers / 10 if len(shape) == 1 else numbers / math.sqrt(shape[1])
        return scaled.bfloat16()

    def block_type(self, _name: str) -> None:
        return None

    def blocks(self, _name: str) -> None:
        return None


def weights(dtype: torch.dtype) -> Weights:
    """The model's weights, to be taken once."""
    return Weights(RandomCheckpoint(), dtype, lambda _done: None)


def logits_of(compute: Compute) -> torch.Tensor:
    """Logits of the second step's tokens, float32 [tokens, vocabulary], from the first step on."""
    compute.forward(_batch(np.zeros(len(_PROMPTS), np.int64), _PROMPTS))
    return compute.logits(compute.forward(_batch(_PROMPTS, _NEXT))).float()


def right_logits() -> torch.Tensor:
    """The same in float32, by torch and the textbook's attention."""
    threads = torch.get_num_threads()
    model = Llama(CONFIG, weights(torch.float32), CONFIG.max_position, threads)
    torch.set_num_threads(threads)  # loading has set it to one
    return logits_of(TorchCompute(model, KvCache(CONFIG, NUM_BLOCKS, BLOCK_SIZE, torch.float32), ReferenceAttention))


def _batch(start: npt.NDArray[np.int64], count: npt.NDArray[np.int64]) -> Batch:
    """A step of all rows, in scattered blocks. What only sampling reads is left out."""
    owner, within = ragged(count)
    positions = start[owner] + within
    tables = np.random.default_rng(0).permutation(NUM_BLOCKS).reshape(len(count), -1).astype(np.int32)
    slots = tables[owner, positions // BLOCK_SIZE].astype(np.int64) * BLOCK_SIZE + positions % BLOCK_SIZE
    return Batch(
        tokens=(37 * positions + 101 * owner) % CONFIG.vocab_size,
        positions=positions,
        slots=slots,
        begun=_NONE,
        spans=Spans(np.cumsum(count) - count, count, start + count, tables, BLOCK_SIZE),
        draws=Draws(*[_NONE] * 5),
        given=_NONE,
        following=_NONE,
        order=_NONE,
        rows=_NONE,
        drafts=_NONE,
    )
