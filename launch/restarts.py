"""What becomes of a process that died, and of the server: the policy. Pure: deaths in, decisions out, the clock given.

It knows names and roles, no processes; the supervisor tells it what happened and does what it says.
"""

from __future__ import annotations

import enum
from collections import Counter
from dataclasses import dataclass

from ..common.types import role_of

STEADY_S = 10.0
"""A process that was ready for so long has proven itself: its death is the first of a new row."""

LONGEST_DELAY_S = 30.0

EXPENDABLE = ("publisher",)
"""Roles that no request needs: the server goes on without them."""


class Fate(enum.Enum):
    """What a death leads to."""

    AGAIN = enum.auto()
    """Another process takes its place."""

    GIVEN_UP = enum.auto()
    """Its place stays empty, and the rest goes on."""

    END = enum.auto()
    """The server ends."""


@dataclass(frozen=True, slots=True)
class Decision:
    """`deaths`: how many there were in a row; `delay_s`: when the next process is started, from now."""

    fate: Fate
    deaths: int
    delay_s: float = 0.0


class Restarts:
    """Counts the deaths of each name in a row. Each may be replaced `most` times in a row."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._served = False
        self._deaths: Counter[str] = Counter()
        self._ready_s: dict[str, float] = {}

    def served(self) -> None:
        """The whole server is ready, for the first time: until then every death is its end."""
        self._served = True

    def ready(self, name: str, now_s: float) -> None:
        """A process is ready."""
        self._ready_s.setdefault(name, now_s)

    def died(self, name: str, now_s: float) -> Decision:
        """A process died, or could not even be started. It did its work until `now_s`: before it hung, if it did."""
        ready_s = self._ready_s.pop(name, now_s)
        if now_s - ready_s >= STEADY_S:
            self._deaths[name] = 0
        self._deaths[name] += 1
        deaths = self._deaths[name]
        if not self._served:
            return Decision(Fate.END, deaths)
        if deaths > self._most:
            return Decision(Fate.GIVEN_UP if role_of(name) in EXPENDABLE else Fate.END, deaths)
        return Decision(Fate.AGAIN, deaths, delay_s(deaths))


def delay_s(deaths: int) -> float:
    """How long to wait after so many deaths in a row: 0, 0.5, 1, 2, 4 s and so on."""
    return 0.0 if deaths == 1 else min(LONGEST_DELAY_S, 2.0 ** (min(deaths, 64) - 3))
