"""Checkpoints in GGUF files, architecture `llama`: names translated, weights dequantized on reading.

llama.cpp rotates neighbouring elements of a head where Hugging Face rotates the two halves, and its
converter permutes the rows of the q and k projections to suit. Reading undoes that (`_halves`).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

from ....common.errors import ModelError
from ...gguf_file import GgufFile
from ..models.config import ModelConfig, linear_divisors
from .blocks import BLOCK, KINDS, Blocks
from .dequantize import dequantize

_ROPE_FACTORS = "rope_freqs.weight"
_TOP = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_IN_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_LAYER_NAME = re.compile(r"blk\.(\d+)\.(\w+)\.(weight|bias)")


class GgufCheckpoint:
    """An open GGUF file; see checkpoint.Checkpoint."""

    def __init__(self, path: Path) -> None:
        self._file = GgufFile(path, tensor_bytes)
        self.config = read_config(self._file)
        self._own_name = {_translate(name): name for name in self._file.tensors}
        self.shapes = {name: self._file.tensors[own].shape for name, own in self._own_name.items()}

    def read(self, name: str) -> torch.Tensor:
        return torch.from_numpy(self._in_order(name, _dequantized(self._file, self._own_name[name])))

    def block_type(self, name: str) -> GGMLQuantizationType | None:
        tensor = self._file.tensors[self._own_name[name]]
        kind = GGMLQuantizationType(tensor.type_id)
        whole = len(tensor.shape) == 2 and tensor.shape[1] % BLOCK == 0
        return kind if kind in KINDS and whole else None

    def blocks(self, name: str) -> Blocks | None:
        kind = self.block_type(name)
        if kind is None:
            return None
        tensor = self._file.tensors[self._own_name[name]]
        return Blocks(kind, self._in_order(name, tensor.data.reshape(tensor.shape[0], -1)))

    def _in_order(self, name: str, weight: np.ndarray) -> np.ndarray:
        """A weight with the rows of queries and keys where Hugging Face has them."""
        if ".q_proj." in name:
            return _halves(weight, self.config.heads)
        if ".k_proj." in name:
            return _halves(weight, self.config.kv_heads)
        return weight


def tensor_bytes(type_id: int, elements: int) -> int:
    """The size of a tensor in the file. Raises ValueError for a type that GGUF does not know."""
    block_elements, block_bytes = GGML_QUANT_SIZES[GGMLQuantizationType(type_id)]
    return elements // block_elements * block_bytes


def read_config(file: GgufFile) -> ModelConfig:
    """The facts in the metadata. Raises ModelError for what is not supported."""
    facts = _Metadata(file)
    _refuse_unsupported(facts)
    heads, hidden = facts.number("attention.head_count"), facts.number("embedding_length")
    head_dim = facts.number("attention.key_length", hidden // heads)
    for key in ("rope.dimension_count", "attention.value_length"):
        if facts.get(key, head_dim) != head_dim:
            raise ModelError(f"{file.path}: {key} {facts.get(key)} with heads of {head_dim} is not supported")
    if "token_embd.weight" not in file.tensors:
        raise ModelError(f"{file.path} lacks tensor token_embd.weight")
    return ModelConfig(
        vocab_size=file.tensors["token_embd.weight"].shape[0],
        hidden_size=hidden,
        intermediate_size=facts.number("feed_forward_length"),
        layers=facts.number("block_count"),
        heads=heads,
        kv_heads=facts.number("attention.head_count_kv", heads),
        head_dim=head_dim,
        max_position=facts.number("context_length"),
        rms_norm_eps=facts.number("attention.layer_norm_rms_epsilon"),
        rope_theta=facts.number("rope.freq_base", 10000.0),
        rope_divisors=_rope_divisors(file, facts, head_dim),
        tied_embeddings="output.weight" not in file.tensors,
        attention_bias="blk.0.attn_q.bias" in file.tensors,
        eos_token_ids=_eos(file.metadata),
    )


class _Metadata:
    """The keys of one architecture in a file's metadata."""

    def __init__(self, file: GgufFile) -> None:
        self.path = file.path
        self._fields = file.metadata
        self.architecture = str(file.metadata.get("general.architecture"))

    def get(self, key: str, default: Any = None) -> Any:
        return self._fields.get(f"{self.architecture}.{key}", default)

    def number(self, key: str, default: float | None = None) -> Any:
        value = self.get(key, default)
        if not isinstance(value, (int, float)):
            raise ModelError(f"{self.path}: {self.architecture}.{key} is {value!r}, which is not supported")
        return value


def _refuse_unsupported(facts: _Metadata) -> None:
    if facts.architecture != "llama":
        raise ModelError(f"{facts.path}: architecture {facts.architecture} is not supported, only llama")
    if facts.get("expert_count", 0):
        raise ModelError(f"{facts.path}: a mixture of experts is not supported")
    if facts.get("attention.sliding_window", 0):
        raise ModelError(f"{facts.path}: a sliding window is not supported")


def _rope_divisors(file: GgufFile, facts: _Metadata, head_dim: int) -> tuple[float, ...]:
    kind = facts.get("rope.scaling.type", "none")
    if kind not in ("none", "linear"):
        raise ModelError(f"{file.path}: rope scaling of type {kind} is not supported")
    if _ROPE_FACTORS in file.tensors:
        divisors = tuple(_dequantized(file, _ROPE_FACTORS).tolist())
        if len(divisors) != head_dim // 2:
            raise ModelError(f"{file.path}: {_ROPE_FACTORS} has {len(divisors)} factors, not {head_dim // 2}")
        return divisors
    if kind == "linear":
        return linear_divisors(facts.number("rope.scaling.factor"), head_dim)
    return ()


def _eos(metadata: dict[str, Any]) -> tuple[int, ...]:
    keys = ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id")
    return tuple(dict.fromkeys(metadata[key] for key in keys if key in metadata))


def _translate(name: str) -> str:
    """Hugging Face's name of a tensor; a name that GGUF's llama does not have stays as it is."""
    match = _LAYER_NAME.fullmatch(name)
    if match and match[2] in _IN_LAYER:
        return f"model.layers.{match[1]}.{_IN_LAYER[match[2]]}.{match[3]}"
    return _TOP.get(name, name)


def _dequantized(file: GgufFile, name: str) -> np.ndarray:
    """A tensor in float32, in memory of its own."""
    tensor = file.tensors[name]
    kind = GGMLQuantizationType(tensor.type_id)
    try:
        return dequantize(tensor.data, kind).reshape(tensor.shape)
    except NotImplementedError:
        raise ModelError(f"{file.path}: tensor {name} of type {kind.name} is not supported") from None


def _halves(weight: np.ndarray, heads: int) -> np.ndarray:
    """Put the rows of each head back from pairs (0, d/2, 1, d/2+1, …) to halves; `permute` of llama.cpp's converter."""
    pairs = weight.reshape(heads, -1, 2, *weight.shape[1:])
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(weight.shape)
