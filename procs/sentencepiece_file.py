"""Reading SentencePiece models: a `tokenizer.model` file, or what a GGUF file of the kind "llama" holds of one.

The file is one protobuf message of which a few fields matter, so they are read here by number
(google/sentencepiece, src/sentencepiece_model.proto) and no protobuf package is needed. Who calls:
vocabulary.py for the bytes of tokens, ingest for a tokenizer.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

from ..common.errors import ModelError

METASPACE = "▁"
"""How SentencePiece writes a space."""

Fields = dict[int, list[Any]]
"""The fields of a protobuf message by number: ints, or bytes for what has a length or is a float."""


class PieceType(IntEnum):
    """What a token is; GGUF has the same numbers (ggml/docs/gguf.md, tokenizer.ggml.token_type)."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True, slots=True)
class SentencePieces:
    """A model: a text, a score and a type for each id, and what is done to a text before it is cut.

    `charsmap` is SentencePiece's compiled normalisation, b"" for none. `special` are the texts that templates may
    name, as "bos_token".
    """

    texts: list[str]
    scores: list[float]
    types: list[int]
    unigram: bool
    space_first: bool
    squeezes_spaces: bool
    charsmap: bytes
    special: dict[str, str]

    def __post_init__(self) -> None:
        if not self.texts or not len(self.texts) == len(self.scores) == len(self.types):
            raise ValueError(f"{len(self.texts)} tokens, {len(self.scores)} scores and {len(self.types)} types")
        if len(set(self.texts)) != len(self.texts):
            raise ValueError("two tokens have the same text")


def read_sentencepiece(path: Path) -> SentencePieces:
    """The model in a `tokenizer.model` file. Raises ModelError."""
    try:
        return _model(_message(path.read_bytes()))
    except FileNotFoundError:
        raise ModelError(f"{path} is missing") from None
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, TypeError, AttributeError, IndexError, struct.error) as error:
        raise ModelError(f"{path} is damaged or no SentencePiece model: {error}") from None


_BPE, _UNIGRAM = 2, 1
_SPECIAL = {"unk_token": (40, 0), "bos_token": (41, 1), "eos_token": (42, 2), "pad_token": (43, -1)}
"""The field of each special token's id in the TrainerSpec, and its default; -1 is none."""


def _model(model: Fields) -> SentencePieces:
    pieces = [_message(piece) for piece in model.get(1, [])]
    trainer, normalizer = (_message(model.get(field, [b""])[-1]) for field in (2, 3))
    kind = _last(trainer, 3, _UNIGRAM)
    if kind not in (_BPE, _UNIGRAM):
        raise ValueError("it splits by words or characters, which is not supported")
    if _last(trainer, 24, 0):
        raise ValueError("it puts spaces behind words, which is not supported")
    texts = [_last(piece, 1, b"").decode() for piece in pieces]
    special = {name: _last(trainer, field, default) for name, (field, default) in _SPECIAL.items()}
    return SentencePieces(
        texts=texts,
        scores=[struct.unpack("<f", _last(piece, 2, bytes(4)))[0] for piece in pieces],
        types=[_last(piece, 3, PieceType.NORMAL) for piece in pieces],
        unigram=kind == _UNIGRAM,
        space_first=bool(_last(normalizer, 3, 1)),
        squeezes_spaces=bool(_last(normalizer, 4, 1)),
        charsmap=_last(normalizer, 2, b""),
        special={name: texts[token] for name, token in special.items() if 0 <= token < len(texts)},
    )


def _last(fields: Fields, number: int, default: Any) -> Any:
    """The value of a field; of several the last counts (protobuf's rule)."""
    values = fields.get(number)
    return values[-1] if values else default


def _message(data: bytes) -> Fields:
    fields: Fields = {}
    for number, value in _fields(data):
        fields.setdefault(number, []).append(value)
    return fields


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """(number, value) of each field of a message (protobuf.dev, "Encoding"). Raises ValueError."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        if key & 7 == 0:
            value, at = _varint(data, at)
            yield key >> 3, value - (1 << 64) if value >> 63 else value  # int32 -1 is ten bytes long
            continue
        if key & 7 == 2:
            length, at = _varint(data, at)
        elif key & 7 in (1, 5):
            length = 8 if key & 7 == 1 else 4
        else:
            raise ValueError(f"a field of wire type {key & 7}")
        if at + length > len(data):
            raise ValueError("a field that is longer than its message")
        yield key >> 3, data[at : at + length]
        at += length


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """The number that begins at a place, and the place behind it."""
    value = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (1 << 64) - 1, at
    raise ValueError("a number of more than ten bytes")
