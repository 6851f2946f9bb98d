"""A request is computed with nobody else in its steps (suspects.py says whom): how the others make way."""

from __future__ import annotations

from ..request import Request
from ..rows import RowTable
from .open_steps import OpenSteps
from .preemption import Preemption


class Isolation:
    """Clears the rows of one table for a single request."""

    def __init__(self, table: RowTable, steps: OpenSteps, preemption: Preemption) -> None:
        self._table = table
        self._steps = steps
        self._preemption = preemption

    def make_way(self, alone: Request) -> bool:
        """Have nobody else in the steps that come; false while there is somebody in one that is open."""
        table = self._table
        if any(request is not alone for request in table.requests_of(self._steps.rows())):
            return False
        for row in table.in_order().tolist():
            if table.request(row) is not alone and not table.pinned[row]:
                self._preemption.suspend(row)
        return True
