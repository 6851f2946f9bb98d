"""Text to token ids and back. Knows no files: load_tokenizer.py makes a ModelTokenizer of a model's.

Text is always encoded literally: a control token that somebody spells becomes the letters it is made of.
Who wants a control token's id, the chat template, asks for it by id. How ids become bytes again is in
../vocabulary.py, which is all that output needs.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from tokenizers import Tokenizer

from ...common.errors import ModelError
from ..vocabulary import Vocabulary

_NFC_GROWTH = 3
"""A text is at most so many times as long in UTF-8 as its NFC (Unicode FAQ, Normalization)."""


class TooManyTokens(Exception):
    """A text has more tokens than are wanted: `count` of them at least."""

    def __init__(self, count: int) -> None:
        super().__init__(f"{count} tokens")
        self.count = count


@dataclass(frozen=True, slots=True)
class ControlToken:
    """A control token as templates spell it; with a strip flag it swallows the white space on that side."""

    id: int
    text: str
    strip_left: bool = False
    strip_right: bool = False


class ModelTokenizer:
    """A model's tokenizer and chat template. Safe to use from several threads.

    `special_tokens` are the texts that a template may name, as "bos_token" and "eos_token".
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        rest: Tokenizer,
        vocabulary: Vocabulary,
        special_tokens: dict[str, str],
        chat_template: str | None,
        add_bos: bool,
    ) -> None:
        """`rest` encodes text that does not begin a prompt; it is mostly the same as `tokenizer`.

        Raises ModelError if a control token of the vocabulary is not the tokenizer's.
        """
        tokenizer.encode_special_tokens = True
        rest.encode_special_tokens = True
        self._tokenizer = tokenizer
        self._rest = rest
        self._strips_space = _begins_with_space(tokenizer)
        self.vocabulary = vocabulary
        self.token_bytes = vocabulary.token_bytes
        self.special_ids = vocabulary.special_ids
        self.special_tokens = special_tokens
        self.chat_template = chat_template
        self.controls = _controls(tokenizer, vocabulary)
        bos = special_tokens.get("bos_token")
        self.bos_id = None if bos is None else tokenizer.token_to_id(bos)
        self.add_bos = add_bos and self.bos_id is not None
        self._longest = max(1, *map(len, self.token_bytes)) * _shrinking(tokenizer)

    @property
    def vocab_size(self) -> int:
        return len(self.token_bytes)

    def encode_text(self, text: str, first: bool = True, most: int | None = None) -> list[int]:
        """The ids of a text, taken literally. `first` is false for a text that follows other tokens.

        With more than `most` of them raises TooManyTokens: a million ids as Python's integers take 30 ms, in which
        no other thread runs.
        """
        tokenizer = self._tokenizer if first else self._rest
        # As a batch, for `encode` keeps all other threads waiting (600 kB: 0.7 s), and with offsets that nobody wants.
        (encoding,) = tokenizer.encode_batch_fast([text], add_special_tokens=False)
        if most is not None and len(encoding) > most:
            raise TooManyTokens(len(encoding))
        return encoding.ids

    def encode_prompt(self, text: str, most: int | None = None) -> list[int]:
        """The ids of a whole prompt: its text, after a BOS token if the model wants one. As `encode_text`."""
        bos = [self.bos_id] if self.add_bos and self.bos_id is not None else []
        try:
            return bos + self.encode_text(text, most=None if most is None else most - len(bos))
        except TooManyTokens as error:
            raise TooManyTokens(len(bos) + error.count) from None

    def decode(self, ids: list[int]) -> str:
        """The text of which `encode_prompt` makes these ids; bytes that are no UTF-8 become U+FFFD."""
        return b"".join(self.pieces(ids)).decode("utf-8", "replace")

    def pieces(self, ids: list[int]) -> list[bytes]:
        """What each of the ids is in the text that `decode` makes of them; an id that no token has is nothing."""
        found = [self.token_bytes[token] if token < self.vocab_size else b"" for token in ids]
        if self.add_bos and ids[:1] == [self.bos_id]:
            found[0] = b""
        first = next((place for place, data in enumerate(found) if data), None)
        if self._strips_space and first is not None:
            found[first] = found[first].removeprefix(b" ")
        return found

    def most_bytes(self, tokens: int) -> int:
        """A text of more bytes of UTF-8 than this surely has more than so many tokens."""
        return tokens * self._longest


def _controls(tokenizer: Tokenizer, vocabulary: Vocabulary) -> tuple[ControlToken, ...]:
    added = tokenizer.get_added_tokens_decoder()
    if unknown := vocabulary.special_ids - added.keys():
        raise ModelError(f"the model's control token {min(unknown)} has no text of its own")
    return tuple(
        ControlToken(token, added[token].content, added[token].lstrip, added[token].rstrip)
        for token in sorted(vocabulary.special_ids)
    )


def _begins_with_space(tokenizer: Tokenizer) -> bool:
    """Whether encoding puts a space before a text that decoding must take away (SentencePiece's habit)."""
    return any(token.startswith("▁") for token in tokenizer.encode("a", add_special_tokens=False).tokens[:1])


def _shrinking(tokenizer: Tokenizer) -> int:
    """How many times shorter, at most, normalisation makes a text."""
    kind = None if tokenizer.normalizer is None else json.loads(tokenizer.to_str())["normalizer"]["type"]
    return _NFC_GROWTH if kind == "NFC" else 1
