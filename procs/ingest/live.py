"""A live request: what ingest knows of it until its last byte is sent, and the mail of its choices.

A request is what a client sent; it has one choice for each text that comes back, and each choice is a
request of its own to the engine. News of a choice wait in its mailbox, where deltas merge while the client
is slow, so that a stream takes no more memory than its text. Prompt ids, generated ids and characters
sent are kept, so that a choice can be handed to the engine again.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import NamedTuple

from ...ipc.messages import Ending, Limits, Sampling
from ...ipc.ring import Tokens
from .errors import Refusal


@dataclass(slots=True, eq=False)
class Choice:
    """One text that a client waits for. `index` is its place in the answer, `prompt_index` that of its prompt."""

    request: LiveRequest
    rid: int
    index: int
    prompt_index: int
    prompt: Tokens
    sampling: Sampling
    limits: Limits
    epoch: int = 0
    generated: bytearray = field(default_factory=bytearray)
    """The ids generated so far: int32, little-endian."""
    sent_chars: int = 0
    mail: str = ""
    ending: Ending | None = None
    in_mail: bool = False


class News(NamedTuple):
    """What is new of a choice: text, and how it ended, if it has."""

    choice: Choice
    delta: str
    ending: Ending | None


class LiveRequest:
    """A client's request and the mail of its choices; one coroutine reads it."""

    def __init__(self, request_id: str, stop: tuple[str, ...], include_stop: bool, skip_special: bool) -> None:
        self.id = request_id
        self.stop = stop
        self.include_stop = include_stop
        self.skip_special = skip_special
        self.choices: list[Choice] = []
        self.gone = False
        """Whether the client has left."""
        self._failure: Refusal | None = None
        self._mail: list[Choice] = []
        self._reader: asyncio.Future[None] | None = None

    def post(self, choice: Choice, delta: str, ending: Ending | None = None) -> None:
        """Put news of a choice into its mailbox and wake the reader."""
        choice.mail += delta
        choice.ending = choice.ending or ending
        if not choice.in_mail:
            choice.in_mail = True
            self._mail.append(choice)
        self._wake()

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
    news = News(choice, choice.mail, choice.ending)
    choice.sent_chars += len(choice.mail)
    choice.mail = ""
    choice.in_mail = False
    return news
