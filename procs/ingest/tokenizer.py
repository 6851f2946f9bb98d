"""Text to token ids and back. Knows no files: load_tokenizer.py makes a ModelTokenizer of a model's.

Text is always encoded literally: a control token that somebody spells becomes the letters it is made of.
Who wants a control token's id, the chat template, asks for it by id. How ids become bytes again is in
../vocabulary.py, which is all that output needs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

from tokenizers import Tokenizer, models, normalizers

from ...common.errors import ModelError
from ..vocabulary import Vocabulary

_NFC_GROWTH = 3
"""A text is at most so many times as long in UTF-8 as its NFC (Unicode FAQ, Normalization)."""

_ANY_GROWTH = 16
"""More than any other normalisation saves of a text that is worth sending."""


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


class SpaceBefore(IntEnum):
    """Which texts a tokenizer encodes with a space before them, as SentencePiece does."""

    NONE = 0
    FIRST = 1
    """The one that begins a prompt."""
    EVERY = 2
    """That one, and those that follow a control token."""


class ModelTokenizer:
    """A model's tokenizer and chat template. Safe to use from several threads.

    `special_tokens` are the texts that a template may name, as "bos_token" and "eos_token". `controls` are what the
    template may write and nobody else: the vocabulary's control tokens, and the template's markers where the
    model does not declare them.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        vocabulary: Vocabulary,
        special_tokens: dict[str, str],
        chat_template: str | None,
        add_bos: bool,
        space_before: SpaceBefore = SpaceBefore.NONE,
    ) -> None:
        """Raises ModelError if a control token of the vocabulary is not the tokenizer's."""
        tokenizer.encode_special_tokens = True
        tokenizer.no_truncation()  # a tokenizer.json may ask for these two, and transformers ignores that, too
        tokenizer.no_padding()
        self._tokenizer = tokenizer
        self._space_before = space_before
        self.vocabulary = vocabulary
        self.token_bytes = vocabulary.token_bytes
        self.special_ids = vocabulary.special_ids
        self.special_tokens = special_tokens
        self.chat_template = chat_template
        self.controls = _controls(tokenizer, vocabulary)
        self._control_ids = frozenset(control.id for control in self.controls)
        self._unspeakable = self._control_ids | _byte_ids(tokenizer)
        self._unknown = special_tokens.get("unk_token")
        self._unknown_id = None if self._unknown is None else tokenizer.token_to_id(self._unknown)
        bos = special_tokens.get("bos_token")
        self.bos_id = None if bos is None else tokenizer.token_to_id(bos)
        self.add_bos = add_bos and self.bos_id is not None
        self._longest = max(1, *map(len, self.token_bytes)) * _shrinking(tokenizer.normalizer)

    @property
    def vocab_size(self) -> int:
        return len(self.token_bytes)

    def encode_text(self, text: str, first: bool = True, most: int | None = None) -> list[int]:
        """The ids of a text, taken literally. `first` is false for a text that follows other tokens.

        With more than `most` of them raises TooManyTokens: a million ids as Python's integers take 30 ms, in which
        no other thread runs.
        """
        least = SpaceBefore.FIRST if first else SpaceBefore.EVERY
        return self._literally(f" {text}" if text and self._space_before >= least else text, most)

    def _literally(self, text: str, most: int | None = None) -> list[int]:
        """The ids of a text; where the library finds a control token in it after all, the text is cut in two.

        Unigram models, and BPE models that take whole words for tokens, look texts up among all tokens.
        """
        # As a batch, for `encode` keeps all other threads waiting (600 kB: 0.7 s); fast, without offsets.
        (encoding,) = self._tokenizer.encode_batch_fast([text], add_special_tokens=False)
        if most is not None and len(encoding) > most:
            raise TooManyTokens(len(encoding))
        ids: list[int] = encoding.ids
        if self._unspeakable.isdisjoint(ids):
            return ids
        (encoding,) = self._tokenizer.encode_batch([text], add_special_tokens=False)
        spans = zip(encoding.ids, encoding.offsets, strict=True)
        cuts = [start + 1 for token, (start, end) in spans if self._is_spelled(token, text[start:end])]
        if not cuts:
            return ids
        ends = [*cuts, len(text)]
        return [
            token for start, end in zip([0, *cuts], ends, strict=True) for token in self._literally(text[start:end])
        ]

    def _is_spelled(self, token: int, letters: str) -> bool:
        """Whether letters that a person wrote were taken for a control token or a byte that they only spell.

        The token for unknown letters stands for any of them. A control token of one letter cannot be broken.
        """
        if token not in self._unspeakable or len(letters) < 2:
            return False
        return letters == self._unknown or token != self._unknown_id

    def encode_prompt(self, text: str, bos: bool = True, most: int | None = None) -> list[int]:
        """The ids of a whole prompt: its text, after a BOS token if the model wants one and `bos` allows it.

        With more than `most` of them raises TooManyTokens.
        """
        before = [self.bos_id] if bos and self.add_bos and self.bos_id is not None else []
        try:
            return before + self.encode_text(text, most=None if most is None else most - len(before))
        except TooManyTokens as error:
            raise TooManyTokens(len(before) + error.count) from None

    def decode(self, ids: list[int]) -> str:
        """The text of which `encode_prompt` makes these ids; bytes that are no UTF-8 become U+FFFD."""
        return b"".join(self.pieces(ids)).decode("utf-8", "replace")

    def pieces(self, ids: list[int]) -> list[bytes]:
        """What each of the ids is in the text that `decode` makes of them; an id that no token has is nothing."""
        found = [self.token_bytes[token] if token < self.vocab_size else b"" for token in ids]
        if self.add_bos and ids[:1] == [self.bos_id]:
            found[0] = b""
        for place in self._spaces(ids, found):
            found[place] = found[place].removeprefix(b" ")
        return found

    def _spaces(self, ids: list[int], found: list[bytes]) -> Iterator[int]:
        """Where `encode_text` has put a space that is not the text's."""
        at_start = self._space_before > SpaceBefore.NONE
        for place, token in enumerate(ids):
            if self._space_before == SpaceBefore.EVERY and token in self._control_ids:
                at_start = True
            elif at_start and found[place]:
                at_start = False
                yield place

    def spellings(self, ids: list[int]) -> list[str]:
        """How the vocabulary spells ids, "Ġhello" or "▁hello"; an id that no token has is ""."""
        return [self._tokenizer.id_to_token(token) or "" for token in ids]

    def most_bytes(self, tokens: int) -> int:
        """A text of more bytes of UTF-8 than this surely has more than so many tokens."""
        return tokens * self._longest


def _controls(tokenizer: Tokenizer, vocabulary: Vocabulary) -> tuple[ControlToken, ...]:
    added = {token: entry for token, entry in tokenizer.get_added_tokens_decoder().items() if entry.special}
    if unknown := vocabulary.special_ids - added.keys():
        raise ModelError(f"the model's control token {min(unknown)} has no text of its own")
    return tuple(
        ControlToken(token, entry.content, entry.lstrip, entry.rstrip) for token, entry in sorted(added.items())
    )


def _byte_ids(tokenizer: Tokenizer) -> frozenset[int]:
    """The tokens for single bytes that a Unigram model finds in a text that spells them, "<0x0A>"."""
    if not isinstance(tokenizer.model, models.Unigram):
        return frozenset()
    ids = (tokenizer.token_to_id(f"<0x{byte:02X}>") for byte in range(256))
    return frozenset(token for token in ids if token is not None)


def _shrinking(normalizer: normalizers.Normalizer | None) -> int:
    """How many times shorter, at most, normalisation makes a text."""
    if isinstance(normalizer, normalizers.Sequence):
        return math.prod(_shrinking(normalizer[place]) for place in range(len(normalizer)))
    if isinstance(normalizer, normalizers.NFC):
        return _NFC_GROWTH
    return 1 if normalizer is None or isinstance(normalizer, normalizers.Replace) else _ANY_GROWTH
