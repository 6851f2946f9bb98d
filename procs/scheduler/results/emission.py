"""What the scheduler has to tell output: new tokens, and the first and the last word about requests."""

from __future__ import annotations

from dataclasses import dataclass

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

    opened: tuple[Opened, ...] = ()
    new: NewTokens = NO_NEW_TOKENS
    ended: LastWords = NO_LAST_WORDS
    prompt_logprobs: Logprobs = NO_VALUES


def opening(request: Request) -> Opened:
    """The first word about a request."""
    request.opened = True
    return Opened(request.rid, request.epoch, request.cached_tokens, request.ticket)


def last_word(request: Request, finish: Finish, detail: Detail | None = None) -> Emission:
    """An emission that ends a request without a new token."""
    opened = () if request.opened else (opening(request),)
    return Emission(opened, ended=end_of(request.rid, finish, detail))


def end_of(rid: int, finish: Finish, detail: Detail | None = None) -> LastWords:
    """The last word about one request that no token stopped."""
    stop_tokens = np.array([NO_STOP_TOKEN], np.int32)
    return LastWords(
        np.array([rid], np.int64), np.array([finish], np.int8), stop_tokens, () if detail is None else (detail,)
    )
