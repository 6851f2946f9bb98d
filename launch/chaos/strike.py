"""Strikes the blows of a plan and watches what becomes of the victims, under a load that it does not know."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from .blows import Blow, Recovery
from .books import Books

LOOK_EVERY_S = 0.01
"""How often the board is read; recovery times are as exact as that."""

Look = Callable[[float], None]
"""Called with the time whenever the board is read. What it raises ends everything."""


@dataclass(frozen=True, slots=True)
class _Struck:
    """A blow whose victim has no successor yet: the `life`-th process of its name."""

    blow: Blow
    at_s: float
    life: int


def strike_all(books: Books, blows: Sequence[Blow], seconds: float, patience_s: float, look: Look) -> list[Recovery]:
    """Strike the blows, and return when so many seconds are over and everybody who was hit has a successor.

    A blow is late if its victim is not ready when it is due. Nobody is waited for longer than `patience_s` after
    the time is over: who has no successor then has a Recovery without an end.
    """
    ends_s = time.monotonic() + seconds
    due = deque((ends_s - seconds + blow.at_s, blow) for blow in blows)
    struck: dict[str, _Struck] = {}
    over: list[Recovery] = []
    tick = threading.Event()  # nobody sets it: what happens on a board wakes nobody
    while (now_s := time.monotonic()) < ends_s + (patience_s if due or struck else 0.0):
        look(now_s)
        for one in [one for one in struck.values() if _has_successor(one, books)]:
            over.append(Recovery(one.blow, one.at_s, now_s))
            del struck[one.blow.name]
        if due and now_s >= due[0][0] and due[0][1].name not in struck and books.life(due[0][1].name).ready:
            _, blow = due.popleft()
            struck[blow.name] = _strike(blow, books)
        tick.wait(LOOK_EVERY_S)
    return over + [Recovery(one.blow, one.at_s, None) for one in struck.values()]


def _has_successor(struck: _Struck, books: Books) -> bool:
    life = books.life(struck.blow.name)
    return life.number > struck.life and life.ready


def _strike(blow: Blow, books: Books) -> _Struck:
    victim = books.life(blow.name)
    with suppress(ProcessLookupError):  # it has died by itself just now
        os.kill(victim.pid, blow.signal)
    return _Struck(blow, time.monotonic(), victim.number)
