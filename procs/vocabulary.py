"""What each token id of a model stands for, in bytes, and which ids are control tokens.

Output needs no more than this to turn ids into text, so it is read straight from the model's files: GGUF
metadata or a Hugging Face tokenizer.json. No tokenizer is built here. Two spellings of bytes exist in
vocabularies: the byte alphabet of GPT-2 (openai/gpt-2, encoder.py, bytes_to_unicode) and that of
SentencePiece ("▁" for a space, "<0x0A>" for a byte).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..common.errors import ModelError
from .gguf_file import GgufFile

CONTROL, USER_DEFINED = 3, 4
"""Token types of GGUF that are spelled as they are; ggml/docs/gguf.md, tokenizer.ggml.token_type."""

MAX_VOCAB = 1 << 24
"""Far above any model's; an id beyond it is damage, for which no memory is taken."""

_METASPACE = "▁"
_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """`token_bytes[i]` is what id i stands for (b"" for an id that no token has); `special_ids` are control tokens."""

    token_bytes: list[bytes]
    special_ids: frozenset[int]


def load_vocabulary(model: str) -> Vocabulary:
    """The vocabulary of a local model: a GGUF file or a Hugging Face folder. Raises ModelError."""
    path = Path(model)
    if path.is_dir():
        return json_vocabulary(read_json(path / "tokenizer.json"), path)
    return gguf_vocabulary(GgufFile(path).metadata, path)


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
    kind = metadata.get("tokenizer.ggml.model")
    if kind != "gpt2":
        raise ModelError(f"{path} has a tokenizer of the kind {kind!r}, which is not supported yet")
    tokens = _list_of(str, metadata, "tokenizer.ggml.tokens", path)
    types = _list_of(int, metadata, "tokenizer.ggml.token_type", path) or [1] * len(tokens)
    if not tokens or len(types) != len(tokens):
        raise ModelError(f"{path} has {len(tokens)} tokens and {len(types)} token types")
    return Vocabulary(
        [
            token.encode() if kind in (CONTROL, USER_DEFINED) else _gpt2_bytes(token)
            for token, kind in zip(tokens, types, strict=True)
        ],
        frozenset(token for token, kind in enumerate(types) if kind == CONTROL),
    )


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
            found[entry["id"]] = entry["content"].encode()
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
        return _gpt2_bytes
    if "ByteFallback" in kinds or "Metaspace" in kinds:
        return _sentencepiece_bytes
    raise ModelError(f"{path}/tokenizer.json has a decoder that is not supported yet: {', '.join(kinds) or 'none'}")


def _kinds(part: dict[str, Any] | None) -> list[str]:
    """The types in a part of tokenizer.json, which may be a sequence of parts."""
    if part is None:
        return []
    nested = part.get("decoders") or part.get("pretokenizers") or part.get("normalizers") or []
    return [part["type"], *(kind for inner in nested for kind in _kinds(inner))]


def _gpt2_alphabet() -> dict[str, int]:
    """GPT-2's letter for each byte: printable ones stand for themselves, the others begin at U+0100."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    letters = {chr(byte): byte for byte in printable}
    return letters | {chr(256 + place): byte for place, byte in enumerate(others)}


# As Latin-1 letters, so that str.translate and encode do the work: a table of 49,152 tokens takes 25 ms.
_GPT2_TO_LATIN1 = {ord(letter): chr(byte) for letter, byte in _gpt2_alphabet().items()}


def _gpt2_bytes(token: str) -> bytes:
    text = token.translate(_GPT2_TO_LATIN1)
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:  # not in the alphabet: a token that was added as plain text
        return token.encode()


def _sentencepiece_bytes(token: str) -> bytes:
    match = _BYTE.fullmatch(token)
    return bytes([int(match[1], 16)]) if match else token.replace(_METASPACE, " ").encode()
