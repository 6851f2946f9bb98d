"""Tokens to text, one token at a time: the joined pieces are one whole decode of all the bytes.

A token's bytes may end inside a character, and may be no valid UTF-8 at all. A byte sequence that can still
become a character is kept back; one that cannot becomes U+FFFD as soon as that is certain, one for each maximal
subpart (The Unicode Standard, section 3.9, "U+FFFD Substitution of Maximal Subparts"). What is still kept back
when generation ends is dropped. Knows nothing of stop strings or of why a request ends.
"""

from __future__ import annotations

from codecs import utf_8_decode
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from .vocabulary import Vocabulary


@dataclass(frozen=True, slots=True, eq=False)
class TokenTable:
    """The bytes of each token, as text is `shown` with control tokens in it and `plain` without them.

    Both have one entry more than there are tokens: b"", at `unknown`, for ids outside the vocabulary.
    """

    shown: Sequence[bytes]
    plain: Sequence[bytes]

    @classmethod
    def of(cls, vocabulary: Vocabulary) -> TokenTable:
        shown = [*vocabulary.token_bytes, b""]
        plain = [b"" if token in vocabulary.special_ids else data for token, data in enumerate(shown)]
        return cls(shown, plain)

    @property
    def unknown(self) -> int:
        return len(self.shown) - 1

    @lru_cache(maxsize=8)  # noqa: B019 (a process has one table; a copy of it for each request would take 10 ms)
    def plain_with(self, markers: tuple[int, ...]) -> Sequence[bytes]:
        """`plain`, but for some control tokens, whose bytes are there."""
        found = list(self.plain)
        for token in markers:
            found[token] = self.shown[token]
        return found if markers else self.plain

    def places(self, tokens: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
        """The entry of each token: its id, or `unknown` where the id is outside the vocabulary."""
        return np.where((tokens >= 0) & (tokens < self.unknown), tokens, np.int32(self.unknown))


class Detokenizer:
    """The decoder of one request's bytes."""

    __slots__ = ("_pending",)

    def __init__(self) -> None:
        self._pending = b""

    def push(self, data: bytes) -> str:
        """The text that has become certain with these bytes."""
        data = self._pending + data
        text, used = utf_8_decode(data, "replace", False)
        self._pending = data[used:]
        # CPython keeps the first two bytes of a surrogate back, which are certain to be no character.
        if self._pending[:1] == b"\xed" and self._pending[1:] >= b"\xa0":
            self._pending = b""
            text += "\ufffd\ufffd"
        return text
