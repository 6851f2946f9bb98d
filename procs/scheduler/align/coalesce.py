"""The `coalesce` algorithm: hold prefills until the ranks together fill a step with them, within bounds.

Few large prefills disturb the running decodes less than many small ones. The ranks take the sum over seven numbers:

    | prefillable | pending tokens | running decodes | KV high | KV low | partial prefill | over age |

The last four are votes of 0 or 1. All bounds but the age of a request count ticks and read no rank's clock, so that
the ranks reach them together. After ATOM's prefill delayer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ....ipc.collective import Collective
from .readiness import Readiness, Rule

_LEAST_FILL = 0.05
_NOTHING_YET = -1.0
"""Less than any pending tokens, so that the first number after a reset counts as growth."""


@dataclass(frozen=True, slots=True)
class CoalesceSettings:
    """When to stop holding. Numbers that make no sense are moved to the nearest that do.

    `target_fill` is a part of the ranks' budgets, within 0.05 and 1; `kv_high` and `kv_low` are parts of a rank's
    blocks in use. Ticks are at least 1.
    """

    target_fill: float = 0.7
    kv_high: float = 0.9
    kv_low: float | None = None
    max_queue_ms: float | None = None
    ttft_max_ticks: int = 30
    partial_max_ticks: int = 8
    stall_ticks: int = 3

    def __post_init__(self) -> None:
        _set = object.__setattr__
        _set(self, "target_fill", min(max(self.target_fill, _LEAST_FILL), 1.0))
        _set(self, "ttft_max_ticks", max(self.ttft_max_ticks, 1))
        _set(self, "partial_max_ticks", max(self.partial_max_ticks, 1))
        _set(self, "stall_ticks", max(self.stall_ticks, 1))


class Coalesce:
    """Counts the ticks that prefills have been held. `budget` is the tokens that one step of a rank may have."""

    def __init__(self, settings: CoalesceSettings, budget: int) -> None:
        self._settings = settings
        self._budget = budget
        self._first = True
        self.held_ticks = 0
        self._stalled_ticks = 0
        self._last_pending = _NOTHING_YET

    def ask(self, collective: Collective, view: Readiness, now: float) -> list[float]:
        """Bring in this rank's numbers, and return the group's."""
        high, low, longest = self._settings.kv_high, self._settings.kv_low, self._settings.max_queue_ms
        return collective.sum(
            [
                view.prefillable,
                min(view.pending_tokens, self._budget),
                view.running_decodes,
                view.prefillable and view.usage >= high,
                view.prefillable and low is not None and view.usage < low,
                view.partial,
                view.prefillable and longest is not None and view.oldest_ms >= longest,
            ]
        )

    def decide(self, numbers: Sequence[float], ranks: int, now: float) -> Rule:
        """The rule that holds for the group's numbers: the first of the table."""
        first, self._first = self._first, False
        rule = Rule.FIRST if first else self._urgent(*numbers) or self._worthwhile(numbers[0], numbers[1], ranks)
        if rule.allows:
            self.reset()
        else:
            self.held_ticks += 1
        return rule

    def _urgent(
        self,
        prefillable: float,
        pending: float,
        decodes: float,
        kv_high: float,
        kv_low: float,
        partials: float,
        over_age: float,
    ) -> Rule | None:
        """Why there is nothing to hold, or nothing may be held any longer."""
        if not prefillable:
            return Rule.VACUOUS
        if not decodes:
            return Rule.NODECODE
        if kv_high or kv_low:
            return Rule.KV
        if over_age:
            return Rule.AGE
        if self.held_ticks >= self._settings.ttft_max_ticks:
            return Rule.TTFT
        if partials and self.held_ticks >= self._settings.partial_max_ticks:
            return Rule.PARTIAL
        return None

    def _worthwhile(self, prefillable: float, pending: float, ranks: int) -> Rule:
        """Whether it pays to hold on."""
        if prefillable < ranks:
            return Rule.MIXED
        if pending / (ranks * self._budget) >= self._settings.target_fill:
            return Rule.FILL
        self._stalled_ticks = self._stalled_ticks + 1 if pending <= self._last_pending else 0
        self._last_pending = pending
        return Rule.STALL if self._stalled_ticks >= self._settings.stall_ticks else Rule.FILLING

    def reset(self) -> None:
        """Prefills were allowed."""
        self.held_ticks = 0
        self._stalled_ticks = 0
        self._last_pending = _NOTHING_YET

    def restart(self) -> None:
        """The group has changed: its next tick is its first."""
        self.reset()
        self._first = True
