"""A small random model in shapes that matrix units take."""

from __future__ import annotations

from pathlib import Path

import torch

from ..unit.procs.executor.tiny import save_folder

VOCAB, HIDDEN, INNER, LAYERS, HEADS, KV_HEADS, HEAD_DIM = 1000, 256, 512, 2, 8, 2, 64


def random_model(folder: Path) -> Path:
    """A folder in Hugging Face's form."""
    query, key_value = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (VOCAB, HIDDEN),
        "lm_head.weight": (VOCAB, HIDDEN),
    }
    norms = ["model.norm.weight"]
    for prefix in (f"model.layers.{layer}" for layer in range(LAYERS)):
        norms += [f"{prefix}.input_layernorm.weight", f"{prefix}.post_attention_layernorm.weight"]
        shapes |= {
            f"{prefix}.self_attn.q_proj.weight": (query, HIDDEN),
            f"{prefix}.self_attn.k_proj.weight": (key_value, HIDDEN),
            f"{prefix}.self_attn.v_proj.weight": (key_value, HIDDEN),
            f"{prefix}.self_attn.o_proj.weight": (HIDDEN, query),
            f"{prefix}.mlp.gate_proj.weight": (INNER, HIDDEN),
            f"{prefix}.mlp.up_proj.weight": (INNER, HIDDEN),
            f"{prefix}.mlp.down_proj.weight": (HIDDEN, INNER),
        }
    random = torch.Generator().manual_seed(1)
    weights = {name: torch.randn(shape, generator=random) * 0.1 for name, shape in shapes.items()}
    weights |= {name: 1 + torch.randn(HIDDEN, generator=random) * 0.1 for name in norms}
    return save_folder(
        folder,
        weights,
        vocab_size=VOCAB,
        hidden_size=HIDDEN,
        intermediate_size=INNER,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        head_dim=HEAD_DIM,
        max_position_embeddings=512,
    )
