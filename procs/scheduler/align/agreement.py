"""What the ranks have agreed on for the next plan: a rank that cannot plan answers the others all the same."""

from __future__ import annotations

from ..planning.forecast import Forecaster
from .gate import Gate, Open


class Agreement:
    """Asks the gate once for each plan, with what this rank could do now."""

    def __init__(self, gate: Gate, forecaster: Forecaster) -> None:
        self._gate = gate
        self._forecaster = forecaster
        self._allowed = False

    def may_prefill(self, now: float) -> bool:
        """Whether this plan may have prefills. To be asked once a plan."""
        allowed, self._allowed = self._allowed, False
        return allowed or isinstance(self._gate, Open) or self._gate.allow(self._forecaster.readiness(now), now)

    def answer(self, now: float) -> None:
        """Answer ranks that wait for this one, which plans nothing now. What they allow is done by the next plan."""
        view = self._forecaster.readiness(now)
        self._allowed = (self._gate.allow(view, now) and view.prefillable) or self._allowed

    @property
    def refused(self) -> bool:
        """Whether the last answer was to hold prefills back."""
        return not self._gate.last.allows
