"""What the scheduler has to tell output: new tokens, and the first and the last word about requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from ....common.types import Finish
from ....ipc.messages import NO_VALUES, Detail, Endings, Logprobs, Opened
from ....ipc.ring import Tokens
from ..request import Request
from ..rows import NO_TOKENS

NO_STOP_TOKEN = -1

Ids = npt.NDArray[np.int64]

_NO_IDS: Ids = np.zeros(0, np.int64)


class FirstWord(Protocol):
    """What says the first word about a request: the request itself, as long as the word waits to be sent."""

    @property
    def rid(self) -> int: ...
    @property
    def cached_tokens(self) -> int: ...
    @property
    def ticket(self) -> bytes: ...


@dataclass(frozen=True, slots=True)
class LastWords:
    """The ends of some requests, in columns: ids, Finish, and the stop id or NO_STOP_TOKEN."""

    rids: Ids
    finishes: npt.NDArray[np.int8]
    stop_tokens: Tokens
    details: tuple[Detail, ...] = ()

    @property
    def message(self) -> Endings:
        return Endings(self.rids.tobytes(), self.finishes.tobytes(), self.stop_tokens.tobytes(), self.details)


NO_LAST_WORDS = LastWords(_NO_IDS, np.zeros(0, np.int8), NO_TOKENS)


@dataclass(frozen=True, slots=True)
class NewTokens:
    """Request rids[i] has counts[i] new tokens; `tokens` (int32) has them one request after the other."""

    rids: Ids
    counts: Tokens
    tokens: Tokens
    logprobs: Logprobs = NO_VALUES


NO_NEW_TOKENS = NewTokens(_NO_IDS, NO_TOKENS, NO_TOKENS)


@dataclass(frozen=True, slots=True)
class Emission:
    """First words, then new tokens, then last words; and what is new of prompts."""

    opened: Sequence[FirstWord] = ()
    new: NewTokens = NO_NEW_TOKENS
    ended: LastWords = NO_LAST_WORDS
    prompt_logprobs: Logprobs = NO_VALUES

    @property
    def first_words(self) -> tuple[Opened, ...]:
        """The messages of `opened`: made when they are sent, which is when the step is on its way to the executor."""
        return tuple([Opened(one.rid, one.cached_tokens, one.ticket) for one in self.opened])


def opening(requests: Sequence[Request]) -> Sequence[Request]:
    """Output is about to hear of these requests for the first time."""
    for request in requests:
        request.opened = True
    return requests


def last_word(request: Request, finish: Finish, detail: Detail | None = None) -> Emission:
    """An emission that ends a request without a new token."""
    opened = () if request.opened else opening((request,))
    return Emission(opened, ended=end_of(request.rid, finish, detail))


def end_of(rid: int, finish: Finish, detail: Detail | None = None) -> LastWords:
    """The last word about one request that no token stopped."""
    stop_tokens = np.array([NO_STOP_TOKEN], np.int32)
    return LastWords(
        np.array([rid], np.int64), np.array([finish], np.int8), stop_tokens, () if detail is None else (detail,)
    )
