"""Whom to hit, when and how: a plan made of a seed before anything runs, so that a run can be had again. Pure."""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

_T = TypeVar("_T")

KILL, STOP = signal.SIGKILL, signal.SIGSTOP
"""The two blows: a death, and a process that is there and does nothing any more."""

_KINDS = (KILL, KILL, KILL, STOP)
"""What each four blows are, in random order. A stop takes as long as the server takes to notice."""

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
    victims, kinds = _in_turns(names, dice), _in_turns(_KINDS, dice)
    times = ((number + _JITTER * dice.random()) * every_s for number in range(int(seconds / every_s)))
    return [Blow(at_s, next(victims), next(kinds)) for at_s in times]


def _in_turns(things: Sequence[_T], dice: random.Random) -> Iterator[_T]:
    """All of them in random order, and again in another."""
    while True:
        yield from dice.sample(things, len(things))


@dataclass(frozen=True, slots=True)
class Recovery:
    """A blow that was struck at `struck_s` and what followed: `ready_s` is when a new process was ready, if ever."""

    blow: Blow
    struck_s: float
    ready_s: float | None

    @property
    def took_s(self) -> float | None:
        return None if self.ready_s is None else self.ready_s - self.struck_s
