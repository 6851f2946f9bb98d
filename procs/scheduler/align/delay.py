"""The `delay` algorithm: refuse prefills while some ranks are ready for them and others are not, within bounds.

Ranks that run in step wait for the slowest; a prefill on one of them costs all of them. The ranks take the maximum
over four yes-or-no numbers, so that each learns whether any of them says so:

    | prefillable | force | ready | not ready |

After SGLang's prefill delayer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ....ipc.collective import Collective
from .readiness import Readiness, Rule


@dataclass(frozen=True, slots=True)
class DelaySettings:
    """Bounds of the delay. Below `low_watermark` of its blocks in use a rank is short of work and waits for nobody."""

    max_delay_passes: int = 30
    max_delay_ms: float = 5000.0
    low_watermark: float | None = None


class Delay:
    """Counts the refusals since prefills were last allowed. `now` is in seconds."""

    def __init__(self, settings: DelaySettings) -> None:
        self._settings = settings
        self._first = True
        self.refusals = 0
        self._refused_since: float | None = None

    def ask(self, collective: Collective, view: Readiness, now: float) -> list[float]:
        """Bring in this rank's numbers, and return the group's."""
        low = self._settings.low_watermark
        short_of_work = low is not None and view.prefillable and view.usage < low
        force = short_of_work or self._delayed_ms(now) >= self._settings.max_delay_ms
        return collective.max([view.prefillable, force, view.ready, not view.ready])

    def decide(self, numbers: Sequence[float], ranks: int, now: float) -> Rule:
        """The rule that holds for the group's numbers."""
        prefillable, force, ready, unready = (number > 0 for number in numbers)
        rule = self._rule(prefillable, force, ready, unready, now)
        self._first = False
        if rule.allows:
            self.reset()
        else:
            self.refusals += 1
            self._refused_since = now if self._refused_since is None else self._refused_since
        return rule

    def _rule(self, prefillable: bool, force: bool, ready: bool, unready: bool, now: float) -> Rule:
        if force:
            return Rule.FORCE
        if self._first:
            return Rule.FIRST
        if not prefillable:
            return Rule.VACUOUS
        if ready and not unready:
            return Rule.READY
        if self.refusals < self._settings.max_delay_passes and self._delayed_ms(now) < self._settings.max_delay_ms:
            return Rule.MIXED
        return Rule.OVERDUE

    def _delayed_ms(self, now: float) -> float:
        return 0.0 if self._refused_since is None else 1000 * (now - self._refused_since)

    def reset(self) -> None:
        """Prefills were allowed."""
        self.refusals = 0
        self._refused_since = None

    def restart(self) -> None:
        """The group has changed: its next tick is its first."""
        self.reset()
        self._first = True
