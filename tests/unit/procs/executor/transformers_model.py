"""A checkpoint's weights in transformers' own Llama: the reference that our numbers are compared with."""

from pathlib import Path

from transformers import LlamaConfig, LlamaForCausalLM

from fourstroke.procs.executor.weights.checkpoint import open_checkpoint


def transformers_model(path: Path) -> LlamaForCausalLM:
    """The file's weights in transformers' own model, in float32; no token ends its texts."""
    checkpoint = open_checkpoint(path)
    facts = checkpoint.config
    config = LlamaConfig(
        vocab_size=facts.vocab_size,
        hidden_size=facts.hidden_size,
        intermediate_size=facts.intermediate_size,
        num_hidden_layers=facts.layers,
        num_attention_heads=facts.heads,
        num_key_value_heads=facts.kv_heads,
        max_position_embeddings=facts.max_position,
        rms_norm_eps=facts.rms_norm_eps,
        rope_parameters={"rope_type": "default", "rope_theta": facts.rope_theta},
        tie_word_embeddings=True,
        eos_token_id=None,
        bos_token_id=None,
    )
    model = LlamaForCausalLM(config)
    weights = {name: checkpoint.read(name) for name in checkpoint.shapes}
    model.load_state_dict(weights | {"lm_head.weight": weights["model.embed_tokens.weight"]})
    return model.eval()
