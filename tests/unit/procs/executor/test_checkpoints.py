"""Both kinds of checkpoint give the same model; what cannot be served is refused in one clear line."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from transformers import LlamaForCausalLM

from fourstroke.common.errors import ModelError
from fourstroke.procs.executor.weights.checkpoint import open_checkpoint, weight_bytes

from .driver import Driver, executor_config, record_logits
from .tiny import CONTEXT, EOS, save_folder, save_gguf, tiny_weights

PROMPT = list(range(10, 47))


def load(path: Path) -> Driver:
    return Driver(executor_config(path, max_model_len=CONTEXT))


def logits_of(path: Path) -> torch.Tensor:
    driver = load(path)
    kept = record_logits(driver.runner)
    driver.prefill([driver.add(PROMPT)])
    return kept[0][0]


def without_head(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: weight for name, weight in weights.items() if name != "lm_head.weight"}


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_gguf_and_safetensors_are_the_same_model(tmp_path: Path, tied: bool, bias: bool) -> None:
    """The same weights in both forms give the same facts and the same logits, to the bit."""
    weights = without_head(tiny_weights(bias)) if tied else tiny_weights(bias)
    folder = save_folder(tmp_path / "hf", weights, tie_word_embeddings=tied, attention_bias=bias)
    file = save_gguf(tmp_path / "model.gguf", weights)
    left, right = open_checkpoint(folder), open_checkpoint(file)
    assert left.config.rms_norm_eps == pytest.approx(right.config.rms_norm_eps)
    for fact in ("layers", "heads", "kv_heads", "head_dim", "tied_embeddings", "attention_bias", "eos_token_ids"):
        assert getattr(left.config, fact) == getattr(right.config, fact)
    assert dict(left.shapes) == dict(right.shapes)
    for name in left.shapes:
        assert torch.equal(left.read(name), right.read(name)), name
    torch.testing.assert_close(logits_of(folder), logits_of(file), rtol=1e-5, atol=1e-5)


ROPE: list[dict[str, Any]] = [
    {},
    {"rope_scaling": {"type": "linear", "factor": 4.0}},
    {
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 128,
        }
    },
    {"rope_theta": None, "rope_parameters": {"rope_type": "default", "rope_theta": 500.0}},
]


@pytest.mark.parametrize("rope", ROPE)
@pytest.mark.parametrize("bias", [False, True])
def test_logits_are_those_of_transformers(tmp_path: Path, rope: dict[str, Any], bias: bool) -> None:
    """Rope scaling and biases mean what they mean to transformers."""
    folder = save_folder(tmp_path / "hf", tiny_weights(bias), attention_bias=bias, **rope)
    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.inference_mode():
        expected = model(torch.tensor([PROMPT])).logits[0, -1]
    torch.testing.assert_close(logits_of(folder), expected, rtol=1e-4, atol=1e-4)


def test_gguf_rope_factors_are_llama3_scaling(tmp_path: Path) -> None:
    """rope_freqs.weight divides the frequencies as the configuration's llama3 scaling does."""
    folder = save_folder(tmp_path / "hf", tiny_weights(), **ROPE[2])
    divisors = open_checkpoint(folder).config.rope_divisors
    assert len(set(divisors)) > 2
    extra = {"rope_freqs.weight": torch.tensor(divisors)}
    file = save_gguf(tmp_path / "model.gguf", tiny_weights() | extra)
    torch.testing.assert_close(logits_of(folder), logits_of(file), rtol=1e-5, atol=1e-5)


def test_sharded_folder_is_read_by_its_index(tmp_path: Path) -> None:
    """Weights over several files are one checkpoint; files outside the index are not read."""
    whole = save_folder(tmp_path / "whole", tiny_weights())
    sharded = save_folder(tmp_path / "sharded", tiny_weights())
    (sharded / "model.safetensors").unlink()
    names = sorted(tiny_weights())
    shards = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for file, part in shards.items():
        save_file({name: tiny_weights()[name] for name in part}, sharded / file)
    save_file({"stray": torch.zeros(1)}, sharded / "c.safetensors")
    index = {"weight_map": {name: file for file, part in shards.items() for name in part}}
    (sharded / "model.safetensors.index.json").write_text(json.dumps(index))
    assert torch.equal(logits_of(whole), logits_of(sharded))


def test_eos_of_generation_config_comes_first(tmp_path: Path) -> None:
    """generation_config.json, then config.json; one id or several."""
    folder = save_folder(tmp_path / "hf", tiny_weights())
    assert open_checkpoint(folder).config.eos_token_ids == EOS
    (folder / "generation_config.json").write_text('{"eos_token_id": 9}')
    assert open_checkpoint(folder).config.eos_token_ids == (9,)


def test_tied_embeddings_count_twice(tmp_path: Path) -> None:
    """The head keeps a copy of tied embeddings: both forms of a checkpoint take the same memory."""
    tied = save_folder(tmp_path / "tied", without_head(tiny_weights()), tie_word_embeddings=True)
    untied = save_folder(tmp_path / "untied", tiny_weights())
    assert weight_bytes(open_checkpoint(tied), 2) == weight_bytes(open_checkpoint(untied), 2)


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        ({"architectures": ["GPT2LMHeadModel"]}, "architecture GPT2LMHeadModel is not supported"),
        ({"architectures": ["MistralForCausalLM"], "sliding_window": 4096}, "a sliding window is not supported"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 2}}, "rope scaling of type yarn is not supported"),
        ({"quantization_config": {}}, "a quantized checkpoint is not supported"),
        ({"mlp_bias": True}, "mlp_bias is not supported"),
        ({"hidden_act": "gelu"}, "hidden_act gelu is not supported"),
        ({"hidden_size": None}, "lacks hidden_size"),
        ({"hidden_size": 48}, r"shape \[96, 32\]; \[96, 48\] is expected"),
        ({"num_hidden_layers": 3}, r"lacks tensor model\.layers\.2\."),
        ({"num_hidden_layers": 1}, r"no use for tensor model\.layers\.1\..* and \d+ more"),
    ],
)
def test_refused_configs(tmp_path: Path, change: dict[str, Any], cause: str) -> None:
    """What the executor does not compute is named, in one line."""
    folder = save_folder(tmp_path / "hf", tiny_weights(), **change)
    with pytest.raises(ModelError, match=cause) as error:
        load(folder)
    assert "\n" not in str(error.value)


def test_mistral_without_a_window_is_served(tmp_path: Path) -> None:
    """Mistral's architecture is Llama's if it has no sliding window."""
    mistral = save_folder(tmp_path / "mistral", tiny_weights(), architectures=["MistralForCausalLM"])
    llama = save_folder(tmp_path / "llama", tiny_weights())
    assert torch.equal(logits_of(mistral), logits_of(llama))


def test_tables_and_a_tied_head_may_be_left_over(tmp_path: Path) -> None:
    """Rotary tables, and the head's copy of tied embeddings, are known and not used."""
    extra = {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.zeros(4)}
    folder = save_folder(tmp_path / "hf", tiny_weights() | extra, tie_word_embeddings=True)
    assert load(folder).runner.hello.num_blocks == 256


@pytest.mark.parametrize(
    ("metadata", "cause"),
    [
        ({"architecture": "qwen2"}, "architecture qwen2 is not supported"),
        ({"sliding_window": 128}, "a sliding window is not supported"),
        ({"expert_count": 8}, "a mixture of experts is not supported"),
        ({"head_count_kv": [2, 2]}, "attention.head_count_kv is .*not supported"),
        ({"rope_dimension_count": 4}, "rope.dimension_count 4 with heads of 8 is not supported"),
    ],
)
def test_refused_gguf(tmp_path: Path, metadata: dict[str, Any], cause: str) -> None:
    """What the executor does not compute is named, in one line."""
    file = save_gguf(tmp_path / "model.gguf", tiny_weights(), **metadata)
    with pytest.raises(ModelError, match=cause):
        load(file)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def scramble(path: Path) -> None:
    path.write_bytes(b"\xff" * 400)


def empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("damage", [cut, scramble, empty, Path.unlink])
@pytest.mark.parametrize("kind", ["hf", "gguf"])
def test_damaged_files_are_refused_before_loading(tmp_path: Path, damage: Callable[[Path], None], kind: str) -> None:
    """A truncated, overwritten, empty or missing file is one line that names it."""
    if kind == "hf":
        path = save_folder(tmp_path / "hf", tiny_weights())
        damage(path / "model.safetensors")
    else:
        path = save_gguf(tmp_path / "model.gguf", tiny_weights())
        damage(path)
    with pytest.raises(ModelError, match=re.escape(str(path))) as error:
        open_checkpoint(path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("content", ["", "[]", "{", '{"architectures": null}'])
def test_broken_config_json_is_refused(tmp_path: Path, content: str) -> None:
    """A config.json that says nothing useful is named."""
    folder = save_folder(tmp_path / "hf", tiny_weights())
    (folder / "config.json").write_text(content)
    with pytest.raises(ModelError, match=r"config\.json"):
        open_checkpoint(folder)


def test_a_type_of_weights_that_is_not_supported_is_named(tmp_path: Path) -> None:
    """Integer weights are refused before anything is loaded."""
    weights = tiny_weights() | {"lm_head.weight": torch.zeros(96, 32, dtype=torch.int8)}
    with pytest.raises(ModelError, match=r"lm_head\.weight of type I8 is not supported"):
        open_checkpoint(save_folder(tmp_path / "hf", weights))


def test_other_files_are_no_models(tmp_path: Path) -> None:
    """A path that is no checkpoint is refused by what it is."""
    (tmp_path / "model.bin").write_bytes(b"x")
    for path, cause in ((tmp_path / "no", "does not exist"), (tmp_path / "model.bin", "neither a folder nor")):
        with pytest.raises(ModelError, match=cause):
            open_checkpoint(path)
