"""Whom to hit, when and how: a plan made of a seed before anything runs, so that a run can be had again. Pure."""

from __future__ import annotations

import random
import signal
from collections.abc import Sequence
from dataclasses import dataclass

KILL, STOP = signal.SIGKILL, signal.SIGSTOP
"""The two blows: a death, and a process that is there and does nothing any more."""

_SHARE_OF_STOPS = 0.25
"""Rarer than kills: a stop takes as long as the server takes to notice."""

_JITTER = 0.5
"""A blow may come so much of the time to the next one late: not in step with anything."""


@dataclass(frozen=True, slots=True)
class Blow:
    """The process called `name` gets a signal `at_s` seconds after the load began, or once it is ready."""

    at_s: float
    name: str
    signal: signal.Signals


def plan_blows(names: Sequence[str], seconds: float, every_s: float, seed: int) -> list[Blow]:
    """The blows of a run. Raises ValueError if there is nobody to hit.

    Every name is hit once before any is hit twice.
    """
    if not names:
        raise ValueError("nobody to hit")
    dice = random.Random(seed)
    blows: list[Blow] = []
    bag: list[str] = []
    for number in range(1, int(seconds / every_s) + 1):
        bag = bag or dice.sample(names, len(names))
        kind = STOP if dice.random() < _SHARE_OF_STOPS else KILL
        blows.append(Blow((number - 1 + _JITTER * dice.random()) * every_s, bag.pop(), kind))
    return blows


@dataclass(frozen=True, slots=True)
class Recovery:
    """A blow that was struck at `struck_s` and what followed: `ready_s` is when a new process was ready, if ever."""

    blow: Blow
    struck_s: float
    ready_s: float | None

    @property
    def took_s(self) -> float | None:
        return None if self.ready_s is None else self.ready_s - self.struck_s
