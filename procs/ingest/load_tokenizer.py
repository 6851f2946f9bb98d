"""Making a ModelTokenizer from a model's files: the metadata of a GGUF file, or a Hugging Face folder.

What the files hold is checked before the tokenizers library sees it, for the library answers nonsense with
errors of every type, a Rust panic among them. Who calls: ingest's main, once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from ...common.errors import ModelError
from ..gguf_file import GgufFile
from ..vocabulary import USER_DEFINED, gguf_vocabulary, json_vocabulary, read_json
from .tokenizer import ModelTokenizer

_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2 = _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")

_GGUF_NAMES = {"bos": "bos", "eos": "eos", "unknown": "unk", "padding": "pad"}
"""GGUF's names of special tokens, and those of templates."""

Merge = tuple[str, str]


def load_tokenizer(model: str) -> ModelTokenizer:
    """The tokenizer of a local model: a GGUF file or a Hugging Face folder. Raises ModelError."""
    path = Path(model)
    return _from_folder(path) if path.is_dir() else _from_gguf(path)


def _check_merges(vocabulary: Mapping[str, int], merges: Iterable[Merge], prefix: str, path: Path) -> None:
    """Raise ModelError unless both halves of each merge and what they become are tokens; the library panics."""
    for left, right in merges:
        if not (left in vocabulary and right in vocabulary and left + right.removeprefix(prefix) in vocabulary):
            raise ModelError(f"{path} merges {left!r} and {right!r}, and one of them or the result is no token")


# GGUF


def _from_gguf(path: Path) -> ModelTokenizer:
    metadata = GgufFile(path).metadata
    vocabulary = gguf_vocabulary(metadata, path)
    tokens, types = metadata["tokenizer.ggml.tokens"], metadata.get("tokenizer.ggml.token_type", [])
    special = _gguf_special_tokens(metadata, tokens, path)
    template = metadata.get("tokenizer.chat_template")
    if not isinstance(template, str | None):
        raise ModelError(f"{path} has a chat template that is no text")
    tokenizer = _byte_level(metadata, tokens, path)
    tokenizer.add_special_tokens(
        [AddedToken(tokens[token], special=True, normalized=False) for token in sorted(vocabulary.special_ids)]
    )
    tokenizer.add_tokens(
        [AddedToken(tokens[token], normalized=False) for token, kind in enumerate(types) if kind == USER_DEFINED]
    )
    add_bos = bool(metadata.get("tokenizer.ggml.add_bos_token", False))
    return ModelTokenizer(tokenizer, tokenizer, vocabulary, special, template, add_bos)


def _gguf_special_tokens(metadata: dict[str, Any], tokens: list[str], path: Path) -> dict[str, str]:
    """The texts of bos_token and its like."""
    found = {}
    for long, short in _GGUF_NAMES.items():
        token = metadata.get(f"tokenizer.ggml.{long}_token_id")
        if token is None:
            continue
        if type(token) is not int or not 0 <= token < len(tokens):
            raise ModelError(f"{path} has {token!r} for its {long} token, which is no token id")
        found[f"{short}_token"] = tokens[token]
    return found


def _byte_level(metadata: dict[str, Any], tokens: list[str], path: Path) -> Tokenizer:
    """A byte-level BPE tokenizer, its text split as `tokenizer.ggml.pre` names it (llama.cpp, llama-vocab.cpp)."""
    name = str(metadata.get("tokenizer.ggml.pre", "default"))
    gpt2 = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    split = {
        "default": gpt2,
        "gpt-2": gpt2,
        "smollm": pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), gpt2]),
        "llama-bpe": _split_by(_LLAMA3),
        "qwen2": _split_by(_QWEN2),
    }.get(name)
    if split is None:
        raise ModelError(f"{path} has the pre-tokenizer {name!r}, which is not supported yet")
    vocabulary = {token: place for place, token in enumerate(tokens)}
    merges = _gguf_merges(metadata, path)
    _check_merges(vocabulary, merges, "", path)
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, ignore_merges=name == "llama-bpe"))
    tokenizer.pre_tokenizer = split
    tokenizer.decoder = decoders.ByteLevel()
    if name == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    return tokenizer


def _gguf_merges(metadata: dict[str, Any], path: Path) -> list[Merge]:
    merges = metadata.get("tokenizer.ggml.merges", [])
    if not isinstance(merges, list) or not all(isinstance(merge, str) and " " in merge for merge in merges):
        raise ModelError(f"{path} has merges that are not two tokens with a space between them")
    pairs = (merge.partition(" ") for merge in merges)
    return [(left, right) for left, _, right in pairs]


def _split_by(pattern: str) -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


# Hugging Face


def _from_folder(path: Path) -> ModelTokenizer:
    spec = read_json(path / "tokenizer.json")
    vocabulary = json_vocabulary(spec, path)
    config = _optional_object(path / "tokenizer_config.json")
    tokenizer = _from_spec(spec, path)
    special = _special_tokens({**_optional_object(path / "special_tokens_map.json"), **config})
    add_bos = config.get("add_bos_token")
    if not isinstance(add_bos, bool):
        first = tokenizer.encode("", add_special_tokens=True).tokens[:1]
        add_bos = first == [special.get("bos_token")]
    rest = _for_the_rest(spec, path) or tokenizer
    return ModelTokenizer(tokenizer, rest, vocabulary, special, _chat_template(path, config), add_bos)


def _from_spec(spec: dict[str, Any], path: Path) -> Tokenizer:
    """The library's tokenizer of a tokenizer.json that json_vocabulary has read."""
    _check_spec_merges(spec["model"], path)
    try:
        return Tokenizer.from_str(json.dumps(spec))
    except Exception as error:
        if type(error) is not Exception:  # the library has no type of its own: it raises the base class itself
            raise
        raise ModelError(f"{path}/tokenizer.json cannot be used: {error}") from None


def _check_spec_merges(model: dict[str, Any], path: Path) -> None:
    """Check merges that are pairs; the library refuses other forms by itself."""
    merges, vocabulary = model.get("merges"), model["vocab"]
    if not isinstance(merges, list) or not isinstance(vocabulary, dict):
        return
    halves = [merge.split(" ") if isinstance(merge, str) else merge for merge in merges]
    pairs = [
        (pair[0], pair[1])
        for pair in halves
        if isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str) and isinstance(pair[1], str)
    ]
    _check_merges(vocabulary, pairs, str(model.get("continuing_subword_prefix") or ""), path)


def _for_the_rest(spec: dict[str, Any], path: Path) -> Tokenizer | None:
    """A tokenizer for text after a control token, where the model's puts a space before the first text alone."""
    splitter = spec.get("pre_tokenizer") or {}
    if splitter.get("type") != "Metaspace" or splitter.get("prepend_scheme") != "first":
        return None
    return _from_spec({**spec, "pre_tokenizer": {**splitter, "prepend_scheme": "never"}}, path)


def _optional_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file; an empty one if there is no such file."""
    value = read_json(path) if path.exists() else {}
    if not isinstance(value, dict):
        raise ModelError(f"{path} is damaged: it holds no object")
    return value


def _special_tokens(config: dict[str, Any]) -> dict[str, str]:
    """The texts of bos_token and its like; each is given as a string or as an object."""
    names = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token")
    values = {name: config.get(name) for name in names}
    texts = {name: value.get("content") if isinstance(value, dict) else value for name, value in values.items()}
    return {name: text for name, text in texts.items() if isinstance(text, str)}


def _chat_template(path: Path, config: dict[str, Any]) -> str | None:
    """The template file if there is one, else the configuration's: a string, or a list of named ones."""
    file = path / "chat_template.jinja"
    try:
        if file.exists():
            return file.read_text(encoding="utf-8")
        template = config.get("chat_template")
        if isinstance(template, list):
            template = {entry["name"]: entry["template"] for entry in template}.get("default")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{path} has a damaged chat template: {type(error).__name__}: {error}") from None
    if not isinstance(template, str | None):
        raise ModelError(f"{path} has a chat template that is no text")
    return template
