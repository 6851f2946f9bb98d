"""What each token id of a model stands for, in bytes, and which ids are control tokens.

Output needs no more than this to turn ids into text, so it is read straight from the model's files: GGUF
metadata, a Hugging Face tokenizer.json or a SentencePiece tokenizer.model. No tokenizer is built here.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..common.errors import ModelError
from .byte_spelling import gpt2_bytes, sentencepiece_bytes
from .gguf_file import GgufFile
from .sentencepiece_file import METASPACE, PieceType, SentencePieces, read_sentencepiece

MAX_VOCAB = 1 << 24
"""Far above any model's; an id beyond it is damage, for which no memory is taken."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """`token_bytes[i]` is what id i stands for (b"" for an id that no token has); `special_ids` are control tokens."""

    token_bytes: list[bytes]
    special_ids: frozenset[int]


def load_vocabulary(model: str) -> Vocabulary:
    """The vocabulary of a local model: a GGUF file or a Hugging Face folder. Raises ModelError."""
    path = Path(model)
    if not path.is_dir():
        return gguf_vocabulary(GgufFile(path).metadata, path)
    if (pieces := folder_pieces(path)) is not None:
        return pieces_vocabulary(pieces)
    return json_vocabulary(read_json(path / "tokenizer.json"), path)


def folder_pieces(path: Path) -> SentencePieces | None:
    """The SentencePiece model of a folder without a tokenizer.json. Raises ModelError."""
    model = path / "tokenizer.model"
    return read_sentencepiece(model) if model.exists() and not (path / "tokenizer.json").exists() else None


def read_json(path: Path) -> Any:
    """The value in a JSON file of a model. Raises ModelError."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelError(f"{path} is missing") from None
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path} is damaged: {error}") from None


def gguf_vocabulary(metadata: dict[str, Any], path: Path) -> Vocabulary:
    """The vocabulary in the metadata of a GGUF file. Raises ModelError if it is of a kind not supported."""
    if (pieces := gguf_pieces(metadata, path)) is not None:
        return pieces_vocabulary(pieces)
    kind = metadata.get("tokenizer.ggml.model")
    if kind != "gpt2":
        raise ModelError(f"{path} has a tokenizer of the kind {kind!r}; supported are 'gpt2' and 'llama'")
    tokens, types = _gguf_tokens(metadata, path)
    whole = (PieceType.CONTROL, PieceType.USER_DEFINED)
    return Vocabulary(
        [token.encode() if kind in whole else gpt2_bytes(token) for token, kind in zip(tokens, types, strict=True)],
        frozenset(token for token, kind in enumerate(types) if kind == PieceType.CONTROL),
    )


def gguf_pieces(metadata: dict[str, Any], path: Path) -> SentencePieces | None:
    """The SentencePiece model in the metadata of a GGUF file, if its kind is "llama". Raises ModelError."""
    if metadata.get("tokenizer.ggml.model") != "llama":
        return None
    tokens, types = _gguf_tokens(metadata, path)
    scores = _list_of(float, metadata, "tokenizer.ggml.scores", path)
    try:
        return SentencePieces(
            tokens,
            scores,
            types,
            unigram=False,
            space_first=bool(metadata.get("tokenizer.ggml.add_space_prefix", True)),
            squeezes_spaces=bool(metadata.get("tokenizer.ggml.remove_extra_whitespaces", False)),
            charsmap=b"",
            special=gguf_special_tokens(metadata, tokens, path),
        )
    except ValueError as error:
        raise ModelError(f"{path} is damaged: {error}") from None


def pieces_vocabulary(pieces: SentencePieces) -> Vocabulary:
    """The vocabulary of a SentencePiece model; its unknown token counts as a control token, as transformers has it."""
    hidden = (PieceType.CONTROL, PieceType.UNKNOWN)
    return Vocabulary(
        [
            text.encode() if kind in hidden else sentencepiece_bytes(text)
            for text, kind in zip(pieces.texts, pieces.types, strict=True)
        ],
        frozenset(token for token, kind in enumerate(pieces.types) if kind in hidden),
    )


_GGUF_NAMES = {"bos": "bos", "eos": "eos", "unknown": "unk", "padding": "pad"}
"""GGUF's names of special tokens, and those of templates."""


def gguf_special_tokens(metadata: dict[str, Any], tokens: list[str], path: Path) -> dict[str, str]:
    """The texts of bos_token and its like. Raises ModelError."""
    found = {}
    for long, short in _GGUF_NAMES.items():
        token = metadata.get(f"tokenizer.ggml.{long}_token_id")
        if token is None:
            continue
        if type(token) is not int or not 0 <= token < len(tokens):
            raise ModelError(f"{path} has {token!r} for its {long} token, which is no token id")
        found[f"{short}_token"] = tokens[token]
    return found


def _gguf_tokens(metadata: dict[str, Any], path: Path) -> tuple[list[str], list[int]]:
    """The texts and the types of the tokens."""
    tokens = _list_of(str, metadata, "tokenizer.ggml.tokens", path)
    types = _list_of(int, metadata, "tokenizer.ggml.token_type", path) or [int(PieceType.NORMAL)] * len(tokens)
    if not tokens or len(types) != len(tokens):
        raise ModelError(f"{path} has {len(tokens)} tokens and {len(types)} token types")
    return tokens, types


def _list_of(kind: type, metadata: dict[str, Any], key: str, path: Path) -> list[Any]:
    values = metadata.get(key, [])
    if not isinstance(values, list) or not all(type(value) is kind for value in values):
        raise ModelError(f"{path} is damaged: {key} is no list of {kind.__name__}")
    return values


def json_vocabulary(spec: dict[str, Any], path: Path) -> Vocabulary:
    """The vocabulary in a tokenizer.json. Raises ModelError if it is of a kind not supported."""
    try:
        entries = _entries(spec["model"])
        added = spec.get("added_tokens") or []
        to_bytes = _spelling(spec, path)
        ids = [token for _, token in entries] + [entry["id"] for entry in added]
        if not all(type(token) is int and 0 <= token < MAX_VOCAB for token in ids):
            raise ValueError("a token has an id that is none")
        found = [b""] * (1 + max(ids))
        for text, token in entries:
            found[token] = to_bytes(text)
        for entry in added:
            special = entry.get("special") or to_bytes is gpt2_bytes
            found[entry["id"]] = (entry["content"] if special else entry["content"].replace(METASPACE, " ")).encode()
        return Vocabulary(found, frozenset(entry["id"] for entry in added if entry.get("special")))
    except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
        raise ModelError(f"{path}/tokenizer.json is damaged: {type(error).__name__}: {error}") from None


def _entries(model: dict[str, Any]) -> list[tuple[str, int]]:
    """(text, id) of all tokens: BPE has a table, Unigram a list with scores."""
    vocabulary = model["vocab"]
    if isinstance(vocabulary, dict):
        return list(vocabulary.items())
    return [(text, token) for token, (text, _score) in enumerate(vocabulary)]


def _spelling(spec: dict[str, Any], path: Path) -> Callable[[str], bytes]:
    """How this vocabulary spells bytes, which its decoder tells."""
    kinds = _kinds(spec.get("decoder"))
    if "ByteLevel" in kinds:
        return gpt2_bytes
    if "ByteFallback" in kinds or "Metaspace" in kinds:
        return sentencepiece_bytes
    raise ModelError(f"{path}/tokenizer.json has a decoder that is not supported yet: {', '.join(kinds) or 'none'}")


def _kinds(part: dict[str, Any] | None) -> list[str]:
    """The types in a part of tokenizer.json, which may be a sequence of parts."""
    if part is None:
        return []
    nested = part.get("decoders") or part.get("pretokenizers") or part.get("normalizers") or []
    return [part["type"], *(kind for inner in nested for kind in _kinds(inner))]
