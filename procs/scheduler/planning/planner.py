"""Filling one step: in which order decodes, chunks of prefills and admissions share its token budget.

Decodes first is the default, so that a long prompt never stops a running stream; with `prefill_first` the
prompts go first and decodes get the rest. Decodes that find no block preempt others; prefill chunks never do.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from ..request import Request
from ..rows import RowTable
from ..statistics import Statistics
from ..waiting import WaitingLine
from .admission import Admission, Ledger
from .admitter import Admitter
from .decodes import Decodes
from .preemption import Preemption
from .prefills import MAX_BYPASSED, Admit, Blocked, Bypass, Chunk, Decision, Gates, Prefills, Receive
from .step import StepBuilder
from .step_rows import StepRows


class Planner:
    """Plans for one row table: decides, and does what was decided to requests, rows and blocks."""

    def __init__(
        self,
        table: RowTable,
        waiting: WaitingLine,
        admission: Admission,
        preemption: Preemption,
        decodes: Decodes,
        prefills: Prefills,
        admitter: Admitter,
        step_rows: StepRows,
        statistics: Statistics,
        *,
        prefill_first: bool,
    ) -> None:
        self._table = table
        self._waiting = waiting
        self._admission = admission
        self._preemption = preemption
        self._decodes = decodes
        self._prefills = prefills
        self._admitter = admitter
        self._step_rows = step_rows
        self._statistics = statistics
        self._prefill_first = prefill_first
        self._overdue: Request | None = None

    def fill(self, builder: StepBuilder, gates: Gates, *, idle: bool, now: float) -> None:
        """Put into a step what the budget holds. `idle`: no step is open, so nothing else will free blocks."""
        before = self._statistics.preemptions
        if self._overdue is not None:
            gates = self._serve_overdue(self._overdue, builder, gates, now)
        if self._prefill_first:
            self._decodes.plan(builder, overdue_only=True)
            blocked = self._plan_prefills(builder, gates, now)
            self._decodes.plan(builder)
        else:
            self._decodes.plan(builder)
            blocked = self._plan_prefills(builder, gates, now)
        while blocked and idle and builder.empty and len(prefills := self._table.prefills()):
            self._preemption.preempt(int(prefills[-1]))
            blocked = self._plan_prefills(builder, gates, now)
        self._step_rows.introduce(builder)
        if self._statistics.preemptions == before and not builder.empty:
            self._admission.stepped()

    def _serve_overdue(self, request: Request, builder: StepBuilder, gates: Gates, now: float) -> Gates:
        """First of all the prompt that has let others pass too often; while it does not fit nobody is admitted."""
        if request.waits:
            ledger = self._admission.ledger(builder.budget, builder.left, told=builder.told_left)
            self._act(builder, self._prefills.decide(ledger, gates, only=request), ledger, now)
        if request.waits:
            return dataclasses.replace(gates, admissions=False)
        self._overdue = None
        return gates

    def _plan_prefills(self, builder: StepBuilder, gates: Gates, now: float) -> bool:
        """True if a running prefill finds no blocks."""
        if not (len(self._waiting) or len(self._table.prefills())):
            return False
        ledger = self._admission.ledger(builder.budget, builder.left, builder.has_prefill, builder.told_left)
        return self._act(builder, self._prefills.decide(ledger, gates, planned=builder), ledger, now)

    def _act(self, builder: StepBuilder, decisions: Iterable[Decision], ledger: Ledger, now: float) -> bool:
        for decision in decisions:
            match decision:
                case Chunk(row, size):
                    self._step_rows.add_chunk(builder, row, size)
                case Admit(request, probe, size):
                    self._admitter.admit(builder, request, probe, now)
                    self._step_rows.add_chunk(builder, request.row, size)
                case Receive(request):
                    self._admitter.receive(builder, request, now)
                case Bypass(request):
                    self._bypass(request)
                case Blocked():
                    return True
            builder.told_left = ledger.told
            let_go = self._table.pool.free - ledger.free  # what was held for choices, by the last that is admitted
            assert let_go >= 0, "decision and deed differ"
            ledger.free += let_go
            ledger.spare += let_go
        return False

    def _bypass(self, request: Request) -> None:
        request.bypassed += 1
        if request.bypassed >= MAX_BYPASSED and self._overdue is None:
            self._overdue = request
