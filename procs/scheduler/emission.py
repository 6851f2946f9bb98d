"""What the scheduler has to tell output: new tokens, and the first and the last word about requests."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...common.types import Finish
from ...ipc.messages import Ended, Opened
from ...ipc.ring import Tokens
from .request import Request

NO_STOP_TOKEN = -1

_NO_RIDS: npt.NDArray[np.int64] = np.zeros(0, np.int64)
_NO_TOKENS: Tokens = np.zeros(0, np.int32)


@dataclass(frozen=True, slots=True)
class Emission:
    """Row i of the columns says that request rids[i] has the new token tokens[i]."""

    opened: tuple[Opened, ...]
    rids: npt.NDArray[np.int64]
    tokens: Tokens
    ended: tuple[Ended, ...]


def opening(request: Request) -> Opened:
    """The first word about a request."""
    request.opened = True
    return Opened(request.rid, request.epoch, request.cached_tokens, request.ticket)


def last_word(request: Request, finish: Finish, detail: str = "") -> Emission:
    """An emission that ends a request without a new token."""
    opened = () if request.opened else (opening(request),)
    return Emission(opened, _NO_RIDS, _NO_TOKENS, (Ended(request.rid, finish, NO_STOP_TOKEN, detail),))
