"""Structured output beside the sampler: which tokens a row may say next, after those that it has said.

When its text is complete a row may say EOS alone, again and again until it is ended (min_tokens and ignore_eos let it
live on). A row whose grammar outgrows its limits fails by itself. What a compiled grammar is, is in ../grammar.py.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from llguidance import LLMatcher

from ...common.errors import ModelError
from ..grammar import compile_grammar, error_of, grammar_tokenizer
from ..vocabulary import Vocabulary, load_vocabulary
from .models.config import ModelConfig
from .verify import Flags

_KEPT = 8
"""Compiled grammars that are kept, at most some 40 MB each; mostly it is 1 MB."""

_MOST_RESTARTS = 2


class Grammars:
    """Compiled grammars of one model, made when a row needs them.

    The vocabulary is read in a thread while the weights are loaded; a model whose vocabulary cannot be read has no
    grammars, and its rows say so.
    """

    def __init__(self, load: Callable[[], Vocabulary], vocab_size: int, eos_token_ids: tuple[int, ...]) -> None:
        self.vocab_size = vocab_size
        self.eos_token_ids = frozenset(eos_token_ids)
        self._compiled: OrderedDict[str, LLMatcher] = OrderedDict()
        loader = ThreadPoolExecutor(1, "vocabulary")
        self._tokenizer = loader.submit(lambda: grammar_tokenizer(load(), vocab_size, eos_token_ids))
        loader.shutdown(wait=False)
        self.nothing: Flags = np.zeros(vocab_size, np.bool_)
        self.only_eos: Flags = np.zeros(vocab_size, np.bool_)
        self.only_eos[list(eos_token_ids)] = True

    def begin(self, grammar: str) -> LLMatcher:
        """A matcher at the beginning of a text. Raises ModelError if the model has no vocabulary for it.

        Matchers of one grammar share the states of its lexer, which are counted for all of them.
        """
        if grammar not in self._compiled:
            self._compiled[grammar] = self.begin_alone(grammar)
            if len(self._compiled) > _KEPT:
                self._compiled.popitem(last=False)
        self._compiled.move_to_end(grammar)
        return self._compiled[grammar].deep_copy()

    def begin_alone(self, grammar: str) -> LLMatcher:
        """The same, sharing nothing."""
        return compile_grammar(self._tokenizer.result(), grammar)

    def forget(self, grammar: str) -> None:
        """Its lexer has outgrown its limits, perhaps by the work of many rows."""
        self._compiled.pop(grammar, None)


class Structure:
    """The text of one row and its grammar. `failure` says why the row cannot go on, or is empty."""

    def __init__(self, grammars: Grammars, grammar: str, generated: Sequence[int]) -> None:
        """`generated` is what the row has said already."""
        self._grammars = grammars
        self._grammar = grammar
        self._said: list[int] = []
        self._restarts = 0
        self._complete = False
        self.failure = ""
        try:
            self._matcher = grammars.begin(grammar)
        except ModelError as error:
            self.failure = f"structured output is not there for this model: {error}"
            return
        self.follow(generated)

    def follow(self, tokens: Sequence[int]) -> None:
        """The row has said some more."""
        for token in tokens:
            if self._complete or self.failure:
                return
            if token in self._grammars.eos_token_ids:
                self._complete = True
                return
            self._said.append(token)
            if not self._matcher.consume_token(token):
                self._restart()

    def allowed(self, drafts: Sequence[int]) -> Flags:
        """Which tokens may follow what was said and then `drafts`, bool [vocabulary]; none if these may not."""
        if self.failure:
            return self._grammars.nothing
        if self._complete or not self._grammars.eos_token_ids.isdisjoint(drafts):
            return self._grammars.only_eos
        mask = self._mask_after(list(drafts))
        if mask is None:
            self._restart()
            mask = None if drafts or self.failure else self._mask_after([])
        if mask is None and not drafts:
            self.failure = self.failure or _too_complex(self._matcher)
        return self._grammars.nothing if mask is None else mask

    def _mask_after(self, drafts: list[int]) -> Flags | None:
        """The same, or None if the matcher has failed."""
        matcher, vocab_size = self._matcher, self._grammars.vocab_size
        if drafts:
            if matcher.validate_tokens(drafts) < len(drafts):
                return None if matcher.is_error() else self._grammars.nothing
            matcher.consume_tokens(drafts)
        bits = np.frombuffer(matcher.compute_bitmask(), np.uint8)
        if drafts:
            matcher.rollback(len(drafts))
        if matcher.is_error():
            return None
        return np.unpackbits(bits, count=vocab_size, bitorder="little").view(np.bool_)

    def _restart(self) -> None:
        """Its matcher has failed, perhaps for what others did to the lexer that they share: try again without them."""
        cause = _too_complex(self._matcher)
        self._grammars.forget(self._grammar)
        self._restarts += 1
        if self._restarts > _MOST_RESTARTS:
            self.failure = cause
            return
        self._matcher = self._grammars.begin_alone(self._grammar)
        if not self._matcher.consume_tokens(self._said):
            self.failure = _too_complex(self._matcher)


def _too_complex(matcher: LLMatcher) -> str:
    return f"the grammar cannot be followed any further: {error_of(matcher)}"


def grammars_of(model: str, config: ModelConfig) -> Grammars:
    """The grammars of a local model."""
    return Grammars(lambda: load_vocabulary(model), config.vocab_size, config.eos_token_ids)
