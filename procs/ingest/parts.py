"""What a client sees of a choice, part by part: its text and log-probabilities, after the prompt if that is echoed.

A chunk of a stream is a part; an answer in one piece has one part. Knows nothing of what stands around them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, repeat
from typing import NamedTuple

from ...ipc.logprobs import Entry, Words, entries
from ..detokenizer import Detokenizer
from .fields import Route
from .live import Choice, NewTokens
from .logprobs import Scored, chat_logprobs, completion_logprobs
from .reading import Reading
from .token_names import TokenNames
from .tools.deltas import Content, Delta

INLINE_WORDS = 1024
"""So many words of log-probabilities take 1 to 4 ms; more become JSON in a thread, so that no stream waits."""


class Part(NamedTuple):
    """What is new, and the log-probabilities of its tokens as JSON: null if it has no token or none are wanted.

    `called`: the choice has called functions, and the last call is complete.
    """

    deltas: Sequence[Delta]
    logprobs: str = "null"
    called: bool = False


class Parts:
    """The parts of one choice, to be taken one after the other."""

    def __init__(self, choice: Choice, route: Route, names: TokenNames) -> None:
        self._choice = choice
        self._names = names
        self._render = chat_logprobs if route == "chat" else completion_logprobs
        self._visible = names.table.plain if choice.request.skip_special else names.table.shown
        echoes = choice.request.echoes
        self._echo = echoes[choice.prompt_index] if echoes else None
        self._before = self._echo or ""
        self._places = _Places(len(self._before))
        speech = choice.request.speech
        self._reading = None if speech is None else Reading(speech)
        self._held: list[NewTokens] = []

    def read(self, text: str, last: bool) -> Sequence[Delta]:
        """What new text says, as far as it is certain; `last` if there is no more."""
        text, self._before = self._before + text, ""
        if self._reading is not None:
            return self._reading.take(text, last)
        return (Content(text),) if text else ()

    async def take(self, deltas: Sequence[Delta], tokens: Sequence[NewTokens], last: bool) -> Part:
        """The part that shows what was read and the tokens behind it.

        The log-probabilities of tokens whose text is not certain yet come with that.
        """
        self._held += tokens
        if not deltas and not last and self._reading is not None:
            return Part(())
        tokens, self._held = self._held, []
        called = self._reading is not None and self._reading.called
        return Part(deltas, await self._logprobs(tokens), called)

    def reasoning_tokens(self) -> int | None:
        """How many of the tokens so far were a thought; None if that cannot be said."""
        speech = self._choice.request.speech
        if speech is None or self._reading is None:
            return None
        return speech.reasoning_tokens(self._choice.generated, self._reading.thought)

    async def _logprobs(self, tokens: Sequence[NewTokens]) -> str:
        """The log-probabilities of tokens, and of the prompt's if it is echoed and this is the first part."""
        echo, self._echo = self._echo, None
        if self._choice.sampling.logprobs < 0 or (echo is None and not tokens):
            return "null"
        prompt_words = [] if echo is None else self._choice.prompt_words
        scored = chain(() if echo is None else self._prompt(echo, prompt_words), self._generated(tokens))
        size = sum(words.size for words in chain(prompt_words, (new.words for new in tokens)) if words is not None)
        if size <= INLINE_WORDS:
            return self._render(self._names, scored)
        return await asyncio.to_thread(self._render, self._names, scored)

    def _prompt(self, echo: str, words: Sequence[Words]) -> Iterator[Scored]:
        """The tokens of the prompt. Nothing stands before the first: it has no log-probability."""
        ids, places = self._choice.prompt.tolist(), _Places(0)
        known: Iterable[Entry | None] = chain([None], *map(entries, words), repeat(None))
        for token, data, entry in zip(ids, self._names.tokenizer.pieces(ids), known, strict=False):
            yield Scored(token, entry, min(places.next(data), len(echo)))

    def _generated(self, tokens: Sequence[NewTokens]) -> Iterator[Scored]:
        for ids, words in tokens:
            known: Iterable[Entry | None] = repeat(None) if words is None else entries(words)
            visible = self._names.table.places(ids).tolist()
            for token, place, entry in zip(ids.tolist(), visible, known, strict=False):
                yield Scored(token, entry, self._places.next(self._visible[place]))


class _Places:
    """Where tokens begin in a text, in characters. One that goes on with a character begins where that does."""

    def __init__(self, start: int) -> None:
        self._decoder = Detokenizer()
        self._chars = start

    def next(self, data: bytes) -> int:
        """Where the token with these bytes begins."""
        here = self._chars
        self._chars += len(self._decoder.push(data))
        return here
