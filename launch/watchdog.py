"""Which processes hang. Pure: what is seen of each process in, the ones to kill and why out, the clock given.

A main loop that comes round beats its heart on the board. A heart that stands still is a hang, unless the process is in
a step, which may take long: there its CPU time must rise, and the step must end some time. A process that starts
must get ready, and must not be stopped meanwhile.

Whether something stands still is counted from when it was first seen so, by the clock of the one who looks. Where that
one was away itself (a laptop that slept, a machine too busy), nothing can be said of the time between: every count
begins anew.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ..common.config import Config

LOOK_EVERY_S = 1.0
"""How often to look."""

AWAY_S = 3.0
"""Who has not looked for so long was away."""


@dataclass(frozen=True, slots=True)
class Signs:
    """What is seen of a process at one moment.

    `step`: when the step began that it runs, 0 for none; `cpu_ticks` matter in a step only. Both, and `heartbeat`, are
    only compared with what they were before. `stopped`, by a signal, matters while it starts: there no heart beats yet.
    """

    pid: int
    ready: bool
    heartbeat: int = 0
    step: int = 0
    cpu_ticks: int = 0
    stopped: bool = False


@dataclass(frozen=True, slots=True)
class Hang:
    """`cause` is what a process did, in words; it was in this state for `seconds`."""

    cause: str
    seconds: float


class _Since:
    """Since when a value is what it is."""

    def __init__(self) -> None:
        self._value: object = None
        self._seen_s = 0.0

    def age_s(self, value: object, now_s: float, away: bool) -> float:
        if value != self._value or away:
            self._value, self._seen_s = value, now_s
        return now_s - self._seen_s


class Watchdog:
    """Looks at all processes, again and again."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._progress: dict[str, _Since] = {}
        self._steps: dict[str, _Since] = {}
        self._stops: dict[str, _Since] = {}
        self._looked_s: float | None = None

    def look(self, now_s: float, seen: Mapping[str, Signs]) -> dict[str, Hang]:
        """The processes that hang now, by name."""
        away = self._looked_s is not None and now_s - self._looked_s > AWAY_S
        self._looked_s = now_s
        verdicts = {name: self._verdict(name, signs, now_s, away) for name, signs in seen.items()}
        return {name: verdict for name, verdict in verdicts.items() if verdict is not None}

    def _verdict(self, name: str, signs: Signs, now_s: float, away: bool) -> Hang | None:
        """What is wrong with a process, if anything is."""
        config, hang_timeout_s = self._config, self._config.hang_timeout_s or math.inf
        progress = signs if signs.ready else signs.pid  # a start is one thing, however often it reports
        silent_s = self._progress.setdefault(name, _Since()).age_s(progress, now_s, away)
        step_s = self._steps.setdefault(name, _Since()).age_s((signs.pid, signs.step), now_s, away)
        stopped_s = self._stops.setdefault(name, _Since()).age_s((signs.pid, signs.stopped), now_s, away)
        if signs.stopped and (
            hang := _hang("was stopped while it started for longer than --hang-timeout", stopped_s, hang_timeout_s)
        ):
            return hang
        if not signs.ready:
            return _hang("was not ready within --start-timeout", silent_s, config.start_timeout_s)
        if signs.step and (
            hang := _hang("was in one step for longer than --step-timeout", step_s, config.step_timeout_s)
        ):
            return hang
        what = "a step without using the CPU" if signs.step else "one turn of its main loop"
        return _hang(f"was in {what} for longer than --hang-timeout", silent_s, hang_timeout_s)


def _hang(cause: str, seconds: float, limit_s: float) -> Hang | None:
    return Hang(f"{cause} {limit_s:g} s", seconds) if seconds > limit_s else None
