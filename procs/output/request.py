"""One request inside output: from its tokens to the text that its client may see, and how it ended.

Tokens are tested one by one: first EOS and stop ids (the scheduler found them: the request has ended with
STOP), then stop strings, then the other reasons to end. Knows no wires and no other request.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...common.types import Finish
from ...ipc.messages import Ending, Opened, Ticket
from ..detokenizer import Detokenizer, TokenTable
from .stop_strings import StopMatcher


class End(NamedTuple):
    """How the scheduler ended a request. `stop_token` is the stop id that did it, or -1."""

    finish: Finish
    stop_token: int
    detail: str = ""


class Piece(NamedTuple):
    """What a request's new tokens gave: a delta, how many of them count, and the end if this is it."""

    delta: str
    tokens: int
    ending: Ending | None


class Request:
    """The text of one request while it grows.

    Text is a function of the tokens alone. So a request that is handed over again becomes what it was when the text of
    its generated tokens had arrived, by taking them in and throwing their text away.
    """

    __slots__ = ("_bytes", "_decoder", "_matcher", "_opened", "_ticket", "tokens")

    def __init__(self, opened: Opened, ticket: Ticket, table: TokenTable) -> None:
        self._opened = opened
        self._ticket = ticket
        self._bytes = table.plain_with(ticket.markers) if ticket.skip_special else table.shown
        self._decoder = Detokenizer()
        self._matcher = StopMatcher(ticket.stop, ticket.include_stop) if ticket.stop else None
        self.tokens = 0
        """Tokens counted so far."""
        self._decode(table.places(np.frombuffer(ticket.generated, np.int32)).tolist())

    @property
    def cached_tokens(self) -> int:
        """How much of the prompt was found in the prefix cache."""
        return self._opened.cached_tokens

    @property
    def reply_to(self) -> str:
        """The ingest that waits for the text."""
        return self._ticket.reply_to

    def push(self, places: list[int], end: End | None = None) -> Piece:
        """Take in tokens, as entries of the token table; `end` if the request ends with the last of them."""
        before = self.tokens
        stopped_by_id = end is not None and end.finish is Finish.STOP and bool(places)
        delta, stop = self._decode(places[:-1] if stopped_by_id else places)
        ending = None
        if stop is not None:
            ending = self._ending(Finish.STOP, stop)
        elif end is not None:
            delta += self._end_of_text(places[-1] if stopped_by_id else None)
            ending = self._ending(end.finish, None, end.stop_token, end.detail)
        return Piece(delta, self.tokens - before, ending)

    def _decode(self, places: list[int]) -> tuple[str, str | None]:
        """The text of tokens up to the first stop string, and that stop string."""
        if self._matcher is None:
            self.tokens += len(places)
            return self._decoder.push(b"".join([self._bytes[place] for place in places])), None
        delta = ""
        for place in places:
            self.tokens += 1
            text = self._decoder.push(self._bytes[place])
            certain, stop = self._matcher.push(text, may_stop=self.tokens > self._ticket.min_tokens)
            delta += certain
            if stop is not None:
                return delta, stop
        return delta, None

    def _end_of_text(self, stop_place: int | None) -> str:
        """What was kept back for a stop string, and the token that ended the request if it is to be shown."""
        text = "" if self._matcher is None else self._matcher.flush()
        if stop_place is None:
            return text
        self.tokens += 1
        return text + (self._decoder.push(self._bytes[stop_place]) if self._ticket.include_stop else "")

    def _ending(self, finish: Finish, stop: str | None, stop_token: int = -1, detail: str = "") -> Ending:
        return Ending(self._opened.rid, finish, stop, stop_token, self.tokens, detail)
