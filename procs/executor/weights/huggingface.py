"""Checkpoints in Hugging Face's form: a folder with config.json and *.safetensors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from ....common.errors import ModelError
from ...vocabulary import read_json
from ..models.config import ARCHITECTURES, ModelConfig, linear_divisors, llama3_divisors

_INDEX = "model.safetensors.index.json"
_DTYPES = ("F32", "F16", "BF16")
_ORIGINAL = "original_max_position_embeddings"


class HuggingFaceCheckpoint:
    """An open folder; see checkpoint.Checkpoint."""

    def __init__(self, folder: Path) -> None:
        self.config = read_config(folder)
        self.shapes: dict[str, tuple[int, ...]] = {}
        self._file_of: dict[str, Any] = {}
        for path in _files(folder):
            self._open(path)

    def _open(self, path: Path) -> None:
        try:
            file: Any = safe_open(path, framework="pt")
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 (it is no mapping)
        except (SafetensorError, OSError) as error:
            raise ModelError(f"cannot read {path}: {error}") from None
        for name, part in slices.items():
            if part.get_dtype() not in _DTYPES:
                raise ModelError(f"{path}: tensor {name} of type {part.get_dtype()} is not supported")
            self.shapes[name] = tuple(part.get_shape())
            self._file_of[name] = file

    def read(self, name: str) -> torch.Tensor:
        tensor: torch.Tensor = self._file_of[name].get_tensor(name)
        return tensor

    def block_type(self, _name: str) -> None:
        return None

    def blocks(self, _name: str) -> None:
        return None


def read_config(folder: Path) -> ModelConfig:
    """The facts in config.json and generation_config.json. Raises ModelError for what is not supported."""
    path = folder / "config.json"
    raw = read_json(path)
    if not isinstance(raw, dict):
        raise ModelError(f"{path} does not hold a JSON object")
    architecture = (raw.get("architectures") or ["none"])[0]
    _refuse_unsupported(path, architecture, raw)
    try:
        heads, hidden = raw["num_attention_heads"], raw["hidden_size"]
        head_dim = raw.get("head_dim") or hidden // heads
        theta, divisors = _rope(path, raw, head_dim)
        return ModelConfig(
            vocab_size=raw["vocab_size"],
            hidden_size=hidden,
            intermediate_size=raw["intermediate_size"],
            layers=raw["num_hidden_layers"],
            heads=heads,
            kv_heads=raw.get("num_key_value_heads") or heads,
            head_dim=head_dim,
            max_position=raw["max_position_embeddings"],
            rms_norm_eps=raw["rms_norm_eps"],
            rope_theta=theta,
            rope_divisors=divisors,
            tied_embeddings=raw.get("tie_word_embeddings", False),
            attention_bias=raw.get("attention_bias", False),
            eos_token_ids=_eos(folder, raw),
        )
    except KeyError as error:
        raise ModelError(f"{path} lacks {error.args[0]}") from None


def _refuse_unsupported(path: Path, architecture: str, raw: dict[str, Any]) -> None:
    if architecture not in ARCHITECTURES:
        raise ModelError(f"{path}: architecture {architecture} is not supported, only {', '.join(ARCHITECTURES)}")
    wanted = {
        "a sliding window": raw.get("sliding_window") is not None,
        "a quantized checkpoint": "quantization_config" in raw,
        "mlp_bias": raw.get("mlp_bias", False),
        f"hidden_act {raw.get('hidden_act')}": raw.get("hidden_act", "silu") != "silu",
    }
    for feature, present in wanted.items():
        if present:
            raise ModelError(f"{path}: {feature} is not supported")


def _rope(path: Path, raw: dict[str, Any], head_dim: int) -> tuple[float, tuple[float, ...]]:
    """The base and the divisors. Older files have rope_theta and rope_scaling, newer ones rope_parameters."""
    scaling = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    theta = float(scaling.get("rope_theta") or raw.get("rope_theta", 10000.0))
    kind = scaling.get("rope_type") or scaling.get("type") or "default"
    if scaling.get("partial_rotary_factor", 1.0) != 1.0:
        raise ModelError(f"{path}: partial_rotary_factor is not supported")
    if kind == "default":
        return theta, ()
    if kind == "linear":
        return theta, linear_divisors(scaling["factor"], head_dim)
    if kind == "llama3":
        low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
        original = scaling.get(_ORIGINAL) or raw["max_position_embeddings"]
        return theta, llama3_divisors(theta, head_dim, scaling["factor"], low, high, original)
    raise ModelError(f"{path}: rope scaling of type {kind} is not supported, only linear and llama3")


def _eos(folder: Path, raw: dict[str, Any]) -> tuple[int, ...]:
    """The tokens that end a text: generation_config.json is asked first, then config.json."""
    generation = folder / "generation_config.json"
    ids = read_json(generation).get("eos_token_id") if generation.exists() else None
    if ids is None:
        ids = raw.get("eos_token_id")
    if ids is None:
        return ()
    return tuple(ids) if isinstance(ids, list) else (ids,)


def _files(folder: Path) -> list[Path]:
    index = folder / _INDEX
    if index.exists():
        paths = sorted({folder / name for name in read_json(index).get("weight_map", {}).values()})
    else:
        paths = sorted(folder.glob("*.safetensors"))
    if not paths:
        raise ModelError(f"there are no *.safetensors files in {folder}")
    return paths
