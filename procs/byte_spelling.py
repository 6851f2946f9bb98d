"""How vocabularies spell bytes in the texts of their tokens.

Two spellings exist: the byte alphabet of GPT-2 (openai/gpt-2, encoder.py, bytes_to_unicode) and that of
SentencePiece ("▁" for a space, "<0x0A>" for a byte).
"""

from __future__ import annotations

import re

from .sentencepiece_file import METASPACE

_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def _gpt2_alphabet() -> dict[str, int]:
    """GPT-2's letter for each byte: printable ones stand for themselves, the others begin at U+0100."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    letters = {chr(byte): byte for byte in printable}
    return letters | {chr(256 + place): byte for place, byte in enumerate(others)}


# As Latin-1 letters, so that str.translate and encode do the work: a table of 49,152 tokens takes 25 ms.
_GPT2_TO_LATIN1 = {ord(letter): chr(byte) for letter, byte in _gpt2_alphabet().items()}


def gpt2_bytes(token: str) -> bytes:
    """The bytes of a token in GPT-2's alphabet."""
    text = token.translate(_GPT2_TO_LATIN1)
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:  # not in the alphabet: a token that was added as plain text
        return token.encode()


def sentencepiece_bytes(token: str) -> bytes:
    """The bytes of a token of SentencePiece."""
    match = _BYTE.fullmatch(token)
    return bytes([int(match[1], 16)]) if match else token.replace(METASPACE, " ").encode()
