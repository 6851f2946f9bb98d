"""Tiny random Llama models, written in both kinds of checkpoint that the executor reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from safetensors.torch import save_file

VOCAB, HIDDEN, INNER, LAYERS, HEADS, KV_HEADS, HEAD_DIM, CONTEXT = 96, 32, 48, 2, 4, 2, 8, 64
EOS = (3, 5)

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": VOCAB,
    "hidden_size": HIDDEN,
    "intermediate_size": INNER,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": HEAD_DIM,
    "max_position_embeddings": CONTEXT,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "eos_token_id": list(EOS),
}

_GGUF_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "model.layers": "blk",
}


def tiny_weights(bias: bool = False) -> dict[str, torch.Tensor]:
    """Random weights by Hugging Face's names, large enough that the tokens of a text vary."""
    query, key_value = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    projections = {
        "self_attn.q_proj": (query, HIDDEN),
        "self_attn.k_proj": (key_value, HIDDEN),
        "self_attn.v_proj": (key_value, HIDDEN),
        "self_attn.o_proj": (HIDDEN, query),
        "mlp.gate_proj": (INNER, HIDDEN),
        "mlp.up_proj": (INNER, HIDDEN),
        "mlp.down_proj": (HIDDEN, INNER),
    }
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (VOCAB, HIDDEN),
        "lm_head.weight": (VOCAB, HIDDEN),
    }
    norms = ["model.norm.weight"]
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}"
        norms += [f"{prefix}.input_layernorm.weight", f"{prefix}.post_attention_layernorm.weight"]
        for name, shape in projections.items():
            shapes[f"{prefix}.{name}.weight"] = shape
            if bias and name.startswith("self_attn"):
                shapes[f"{prefix}.{name}.bias"] = shape[:1]
    random = torch.Generator().manual_seed(1)
    weights = {name: torch.randn(shape, generator=random) * 0.3 for name, shape in shapes.items()}
    return weights | {name: 1 + torch.randn(HIDDEN, generator=random) * 0.1 for name in norms}


def save_folder(folder: Path, weights: dict[str, torch.Tensor], **config: Any) -> Path:
    """A folder in Hugging Face's form; a config value of None leaves the key out."""
    folder.mkdir(exist_ok=True)
    merged = {key: value for key, value in (CONFIG | config).items() if value is not None}
    (folder / "config.json").write_text(json.dumps(merged))
    save_file(weights, folder / "model.safetensors")
    return folder


def save_gguf(path: Path, weights: dict[str, torch.Tensor], architecture: str = "llama", **metadata: Any) -> Path:
    """A GGUF file in float32 as llama.cpp's converter writes it; `metadata` are keys of llama, dots as underscores."""
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_key_length(HEAD_DIM)
    writer.add_rope_dimension_count(HEAD_DIM)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_eos_token_id(EOS[0])
    writer.add_eot_token_id(EOS[1])
    for method, value in metadata.items():
        getattr(writer, f"add_{method}")(value)
    for name, weight in weights.items():
        writer.add_tensor(gguf_name(name), _permuted(name, weight.numpy()))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def gguf_name(name: str) -> str:
    for theirs, ours in _GGUF_NAMES.items():
        name = name.replace(theirs, ours)
    return name


def _permuted(name: str, weight: np.ndarray) -> np.ndarray:
    """`LlamaModel.permute` of llama.cpp's convert_hf_to_gguf.py, word for word."""
    heads = HEADS if "q_proj" in name else KV_HEADS if "k_proj" in name else 0
    if not heads:
        return weight
    halves = weight.reshape(heads, 2, weight.shape[0] // heads // 2, *weight.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(weight.shape))
