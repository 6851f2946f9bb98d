"""Grammars that a text must obey, compiled by llguidance: which tokens may come next, after those that were.

Ingest compiles a grammar to see whether it is one, and what it costs; the executor compiles it for the rows that obey
it. Both do the same within the same limits, so what ingest lets through the executor can use. A grammar travels as the
text that `LLMatcher` takes. What clients write, and how that becomes such a text, is ingest's (ingest/structure.py).
"""

from __future__ import annotations

from collections.abc import Iterable

from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper

from ..common.errors import ModelError
from .vocabulary import Vocabulary

MAX_GRAMMAR_BYTES = 1 << 16

_LIMITS = LLParserLimits(
    initial_lexer_fuel=100_000,
    step_lexer_fuel=50_000,
    step_max_items=10_000,
    max_lexer_states=20_000,
    max_grammar_size=50_000,
    verbose_errors=False,
)
"""A tenth or so of llguidance's own: a mask costs some 10 ms at the most, where it mostly is 10 us."""

_MAX_ERROR_CHARS = 300


class _Tokens:
    """What LLTokenizer asks of a tokenizer."""

    def __init__(
        self, vocabulary: Vocabulary, vocab_size: int, eos_token_id: int, splitter: LLTokenizer | None
    ) -> None:
        self.tokens = vocabulary.token_bytes[:vocab_size]
        self.special_token_ids = sorted(token for token in vocabulary.special_ids if token < vocab_size)
        self.eos_token_id = eos_token_id
        self.bos_token_id = None
        self._splitter = splitter

    def __call__(self, text: bytes) -> list[int]:
        """The tokens of a text that a grammar forces: the longest ones from left to right."""
        return [] if self._splitter is None else self._splitter.greedy_tokenize(text.decode("utf-8", "replace"))


def grammar_tokenizer(vocabulary: Vocabulary, vocab_size: int, eos_token_ids: Iterable[int]) -> LLTokenizer:
    """A vocabulary as grammars see it; takes 0.1 to 0.3 s. Ids from its end up to `vocab_size` are no tokens.

    Raises ModelError if there is no EOS token, which ends a text, or the vocabulary is no good.
    """
    ends = list(eos_token_ids)
    if not ends:
        raise ModelError("the model has no EOS token")

    def make(splitter: LLTokenizer | None, slices: list[str] | None) -> LLTokenizer:
        tokens = TokenizerWrapper(_Tokens(vocabulary, vocab_size, ends[0], splitter))
        return LLTokenizer(tokens, n_vocab=vocab_size, eos_token=ends, slices=slices)

    try:
        return make(make(None, []), None)
    except ValueError as error:
        raise ModelError(f"the vocabulary cannot be used for grammars: {error}") from None


def compile_grammar(tokenizer: LLTokenizer, grammar: str) -> LLMatcher:
    """A matcher at the beginning of a text, which is in an error state if the grammar is none."""
    return LLMatcher(tokenizer, grammar, log_level=0, limits=_LIMITS)


def error_of(matcher: LLMatcher) -> str:
    """The first line of a matcher's error; empty if there is none."""
    text = matcher.get_error().partition("\n<")[0].strip()
    return " ".join(text.split())[:_MAX_ERROR_CHARS]
