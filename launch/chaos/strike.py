"""Strikes the blows of a plan and watches what becomes of the victims, under a load that it does not know."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from .blows import KILL, Blow, Recovery
from .books import Books

LOOK_EVERY_S = 0.01
"""How often the board is read; recovery times are as exact as that."""

_TOLD_AFTER_S = 0.5
"""Who is stopped right after the board says that it is ready has not told the launcher yet, which waits for that long:
as long as a start may take."""

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
    begun_s = time.monotonic()
    striking = _Striking(books, blows, begun_s)
    tick = threading.Event()  # nobody sets it: what happens on a board wakes nobody
    while (now_s := time.monotonic()) < begun_s + seconds + (patience_s if striking.busy else 0.0):
        look(now_s)
        striking.advance(now_s)
        tick.wait(LOOK_EVERY_S)
    return striking.recoveries


class _Striking:
    """Blows that are due, that were struck, that are over."""

    def __init__(self, books: Books, blows: Sequence[Blow], begun_s: float) -> None:
        self._books = books
        self._begun_s = begun_s
        self._due = deque(blows)
        self._struck: dict[str, _Struck] = {}
        self._over: list[Recovery] = []
        self._ready_s: dict[tuple[str, int], float] = {}

    @property
    def busy(self) -> bool:
        return bool(self._due or self._struck)

    @property
    def recoveries(self) -> list[Recovery]:
        return self._over + [Recovery(one.blow, one.at_s, None) for one in self._struck.values()]

    def advance(self, now_s: float) -> None:
        """See who has a successor, and strike the next blow if it is time."""
        for name, one in list(self._struck.items()):
            life = self._books.life(name)
            if life.ready and life.number > one.life:
                self._over.append(Recovery(one.blow, one.at_s, now_s))
                del self._struck[name]
        if self._due and now_s >= self._begun_s + self._due[0].at_s and self._may_strike(self._due[0], now_s):
            blow = self._due.popleft()
            self._struck[blow.name] = _strike(blow, self._books)

    def _may_strike(self, blow: Blow, now_s: float) -> bool:
        """Whether its victim is ready, and for a stop has been so for a while."""
        life = self._books.life(blow.name)
        if blow.name in self._struck or not life.ready:
            return False
        since_s = self._ready_s.setdefault((blow.name, life.number), now_s)
        return blow.signal is KILL or now_s - since_s >= _TOLD_AFTER_S


def _strike(blow: Blow, books: Books) -> _Struck:
    victim = books.life(blow.name)
    with suppress(ProcessLookupError):  # it has died by itself just now
        os.kill(victim.pid, blow.signal)
    return _Struck(blow, time.monotonic(), victim.number)
