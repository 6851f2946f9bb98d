"""The gate before prefills and admissions: may they be planned in this tick, for the good of all ranks?

The planner asks once per tick, whatever its queues hold. The algorithms are in `delay` and `coalesce`, the way to the
other ranks is a Collective; this knows neither. If the ranks do not agree, prefills go ahead: waiting
for a rank that may be gone helps nobody.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from typing import Protocol

from ....common.config import Config
from ....common.errors import CollectiveError
from ....ipc.collective import Collective
from .coalesce import Coalesce, CoalesceSettings
from .delay import Delay, DelaySettings
from .readiness import Readiness, Rule

log = logging.getLogger("fourstroke")


class Gate(Protocol):
    """What the planner asks. `fired` counts the answers by their rule, all but first calls."""

    last: Rule
    fired: Counter[Rule]
    errors: int

    def allow(self, view: Readiness, now: float) -> bool:
        """Whether prefills and admissions may be planned. `now` is in seconds and never falls."""
        ...


class Algorithm(Protocol):
    """A table of rules. It is the same on every rank, and so is what it remembers."""

    def ask(self, collective: Collective, view: Readiness, now: float) -> list[float]: ...

    def decide(self, numbers: Sequence[float], ranks: int, now: float) -> Rule: ...

    def reset(self) -> None: ...

    def restart(self) -> None: ...


class Open:
    """Alignment is off."""

    def __init__(self) -> None:
        self.last = Rule.OPEN
        self.fired: Counter[Rule] = Counter()
        self.errors = 0

    def allow(self, view: Readiness, now: float) -> bool:
        return True


class Aligned:
    """Opens when the algorithm says so for the numbers of all ranks."""

    def __init__(self, collective: Collective, algorithm: Algorithm) -> None:
        self.last = Rule.OPEN
        self.fired: Counter[Rule] = Counter()
        self.errors = 0
        self._collective = collective
        self._algorithm = algorithm
        self._generation = collective.generation

    def allow(self, view: Readiness, now: float) -> bool:
        self.last = self._rule(view, now)
        if self.last is not Rule.FIRST:
            self.fired[self.last] += 1
        return self.last.allows

    def _rule(self, view: Readiness, now: float) -> Rule:
        try:
            numbers = self._algorithm.ask(self._collective, view, now)
        except CollectiveError as error:
            self.errors += 1
            log.warning("prefills are not aligned: %s", error)
            self._algorithm.reset()
            return Rule.ERROR
        if self._collective.generation != self._generation:
            self._generation = self._collective.generation
            self._algorithm.restart()
        return self._algorithm.decide(numbers, self._collective.size, now)


def gate_for(config: Config, collective: Collective) -> Gate:
    """The gate that a configuration asks for."""
    match config.alignment:
        case "delay":
            return Aligned(collective, Delay(DelaySettings()))
        case "coalesce":
            return Aligned(collective, Coalesce(CoalesceSettings(), config.max_num_batched_tokens))
    return Open()
