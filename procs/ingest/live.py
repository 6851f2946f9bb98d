"""A live request: what ingest knows of it until its last byte is sent, and the mail of its choices.

A request is what a client sent; it has one choice for each text that comes back. The choices of a prompt are
handed to the engine together, and each is a request of its own there. News of a choice wait in its mailbox,
where deltas merge while the client is slow, so that a stream takes no more memory than its text. Prompt
ids and generated ids are kept, so that a choice can be handed to an engine again.
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ...common.types import Finish
from ...ipc.logprobs import Words
from ...ipc.messages import CacheKeys, Ending, Limits, Sampling
from ...ipc.ring import Tokens
from .errors import Refusal
from .reading import Speech

_NO_KEYS = CacheKeys()


class NewTokens(NamedTuple):
    """Tokens of a choice that wants log-probabilities, and these: None if they were lost on the way."""

    ids: Tokens
    words: Words | None


@dataclass(slots=True, eq=False)
class Choice:
    """One text that a client waits for. `index` is its place in the answer, `prompt_index` that of its prompt.

    `rid` is its id behind ingest, another one each time that it is handed over. `digests` are the hashes of the
    prompt's full blocks, or nothing without a prefix cache.
    """

    request: LiveRequest
    rid: int
    seed: int
    index: int
    prompt_index: int
    prompt: Tokens
    digests: bytes
    sampling: Sampling
    limits: Limits
    generated: bytearray = field(default_factory=bytearray)
    """The ids generated so far: int32, little-endian."""
    cached_tokens: int | None = None
    """What the prefix cache had of the prompt when the choice began first; None: it has not begun."""
    prompt_words: list[Words] = field(default_factory=list)
    """The log-probabilities of the prompt's tokens from the second on, if they are wanted."""
    held: list[NewTokens] = field(default_factory=list)
    """Tokens that came without text, whose log-probabilities go with the next that there is."""
    read_chars: int = 0
    mail: str = ""
    mailed: list[NewTokens] = field(default_factory=list)
    ending: Ending | None = None
    in_mail: bool = False

    @property
    def generated_tokens(self) -> int:
        return len(self.generated) // 4

    def add(self, ids: bytes, words: Words | None) -> None:
        """Take in generated tokens; `words` are their log-probabilities, a view of a message about many requests."""
        self.generated += ids
        if ids and self.sampling.logprobs >= 0:
            self.held.append(NewTokens(np.frombuffer(ids, np.int32), None if words is None else words.copy()))


class News(NamedTuple):
    """What is new of a choice: text, how it ended, if it has, and the tokens if log-probabilities are wanted."""

    choice: Choice
    delta: str
    ending: Ending | None
    tokens: list[NewTokens]


class LiveRequest:
    """A client's request and the mail of its choices; one coroutine reads it."""

    def __init__(
        self,
        request_id: str,
        stop: tuple[str, ...],
        include_stop: bool,
        skip_special: bool,
        *,
        keys: CacheKeys = _NO_KEYS,
        priority: int = 0,
        deadline_s: float = math.inf,
    ) -> None:
        """`deadline_s` is when the client wants no more, on the monotonic clock; a lower `priority` goes first."""
        self.id = request_id
        self.stop = stop
        self.include_stop = include_stop
        self.skip_special = skip_special
        self.keys = keys
        self.priority = priority
        self.deadline_s = deadline_s
        self.choices: list[Choice] = []
        self.echoes: list[str] = []
        """The texts of the prompts, in order, if each choice's text is to begin with its own."""
        self.speech: Speech | None = None
        """How its texts are to be read, if they may be more than text."""
        self.aborted = False
        """Whether somebody wants it to end before its time."""
        self.gone = False
        """Whether the client has left."""
        self._failure: Refusal | None = None
        self._mail: list[Choice] = []
        self._reader: asyncio.Future[None] | None = None

    def post(self, choice: Choice, delta: str, ending: Ending | None = None) -> None:
        """Put news of a choice into its mailbox and wake the reader."""
        choice.mail += delta
        choice.mailed += choice.held
        choice.held.clear()
        choice.ending = choice.ending or ending
        if not choice.in_mail:
            choice.in_mail = True
            self._mail.append(choice)
        self._wake()

    def abort(self, now_s: float) -> None:
        """Somebody wants it to end: its time is up now."""
        self.aborted = True
        self.deadline_s = min(self.deadline_s, now_s)

    @property
    def early_end(self) -> Finish:
        """How its choices end if their time is up."""
        return Finish.ABORT if self.aborted else Finish.TIMEOUT

    def leave(self) -> None:
        """The client is gone: the reader need not wait any more."""
        self.gone = True
        self._wake()

    def fail(self, refusal: Refusal) -> None:
        """There will be no more news: the reader is given the reason instead."""
        self._failure = refusal
        self._wake()

    async def news(self) -> list[News]:
        """All that is new, in the order in which it came; waits for it. Empty when the client is gone.

        Raises Refusal if the request has failed.
        """
        while not (self._mail or self.gone or self._failure):
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader
        if self._failure is not None and not self.gone:
            raise self._failure
        mail, self._mail = self._mail, []
        return [] if self.gone else [_take(choice) for choice in mail]

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)


def _take(choice: Choice) -> News:
    news = News(choice, choice.mail, choice.ending, choice.mailed)
    choice.read_chars += len(choice.mail)
    choice.mail, choice.mailed = "", []
    choice.in_mail = False
    return news
