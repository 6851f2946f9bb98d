"""Making a ModelTokenizer from a model's files: the metadata of a GGUF file, or a Hugging Face folder.

What the files hold is checked before the tokenizers library sees it, for the library answers nonsense with
errors of every type, a Rust panic among them. Who calls: ingest's main, once.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from ...common.errors import ModelError
from ..sentencepiece_file import SentencePieces
from ..vocabulary import folder_pieces, json_vocabulary, pieces_vocabulary, read_json
from .gguf_tokenizer import from_gguf
from .library import check_merges, named_errors
from .markers import markers
from .sentencepiece_tokenizer import sentencepiece_tokenizer
from .space_before import take_space
from .tokenizer import ModelTokenizer, SpaceBefore


def load_tokenizer(model: str) -> ModelTokenizer:
    """The tokenizer of a local model: a GGUF file or a Hugging Face folder. Raises ModelError."""
    path = Path(model)
    return _from_folder(path) if path.is_dir() else from_gguf(path)


def _from_folder(path: Path) -> ModelTokenizer:
    config = _optional_object(path / "tokenizer_config.json")
    special = _special_tokens({**_optional_object(path / "special_tokens_map.json"), **config})
    template = _chat_template(path, config)
    if (pieces := folder_pieces(path)) is not None:
        with named_errors(path / "tokenizer.model"):
            return _from_pieces(pieces, config, special, template)
    spec = read_json(path / "tokenizer.json")
    vocabulary = json_vocabulary(spec, path)
    _mark_controls(spec, template)
    spec, space = take_space(spec)
    tokenizer = _from_spec(spec, path)
    add_bos = config.get("add_bos_token")
    if not isinstance(add_bos, bool):
        first = tokenizer.encode("", add_special_tokens=True).tokens[:1]
        add_bos = first == [special.get("bos_token")]
    return ModelTokenizer(tokenizer, vocabulary, special, template, add_bos, space)


def _from_pieces(
    pieces: SentencePieces, config: dict[str, Any], special: dict[str, str], template: str | None
) -> ModelTokenizer:
    tokenizer = sentencepiece_tokenizer(pieces, template)
    add_bos = config.get("add_bos_token", True) is not False
    space = SpaceBefore.NONE
    if pieces.space_first:
        # transformers' name for putting it behind every control token, as these models were trained.
        space = SpaceBefore.FIRST if config.get("legacy") is False else SpaceBefore.EVERY
    return ModelTokenizer(tokenizer, pieces_vocabulary(pieces), pieces.special | special, template, add_bos, space)


def _mark_controls(spec: dict[str, Any], template: str | None) -> None:
    """Have the library take the template's markers for control tokens."""
    added = spec.get("added_tokens") or []
    found = markers([entry["content"] for entry in added], template)
    for entry in added:
        entry["special"] = bool(entry.get("special")) or entry["content"] in found


def _from_spec(spec: dict[str, Any], path: Path) -> Tokenizer:
    """The library's tokenizer of a tokenizer.json that json_vocabulary has read."""
    _check_spec_merges(spec["model"], path)
    if spec["model"].get("type") == "Unigram" and spec["model"].get("unk_id") is None:
        raise ModelError(f"{path} has a Unigram model without a token for what is unknown")
    with named_errors(path / "tokenizer.json"):
        return Tokenizer.from_str(json.dumps(spec))


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
    check_merges(vocabulary, pairs, str(model.get("continuing_subword_prefix") or ""), path)


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
