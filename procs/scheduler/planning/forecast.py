"""What the next plan would do, without doing it. The decisions are those of the planner itself."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..align.readiness import Readiness
from ..cache.resets import Resets
from ..policy import Policy, TwoBatch
from ..rows import RowTable
from ..waiting import WaitingLine
from .admission import Admission
from .decodes import Decodes
from .prefills import Admit, Blocked, Chunk, Gates, Prefills


@dataclass(frozen=True, slots=True)
class Forecast:
    """The rows and tokens of the next step."""

    prefill_rows: int
    prefill_tokens: int
    decode_rows: int
    decode_tokens: int


@dataclass(frozen=True, slots=True)
class Prospect:
    """The prefills that a whole step could have now: their rows, tokens, and the longest."""

    rows: int
    tokens: int
    longest: int


class Forecaster:
    """Looks at one scheduler's state. Changes nothing."""

    def __init__(
        self,
        table: RowTable,
        waiting: WaitingLine,
        admission: Admission,
        decodes: Decodes,
        prefills: Prefills,
        resets: Resets,
        policy: Policy,
    ) -> None:
        self._table = table
        self._waiting = waiting
        self._admission = admission
        self._decodes = decodes
        self._prefills = prefills
        self._resets = resets
        self._policy = policy

    def forecast(self) -> Forecast:
        """The next step, if the pool has blocks for its decodes, and nobody in it was left out too often."""
        budget = self._policy.max_num_batched_tokens
        if self._policy.prefill_first:
            ahead = self._look(budget)
            served, tokens = self._decode_rows(budget - ahead.tokens)
        else:
            served, tokens = self._decode_rows(budget)
            ahead = self._look(budget - tokens)
        return Forecast(ahead.rows, ahead.tokens, served, tokens)

    def _decode_rows(self, tokens: int) -> tuple[int, int]:
        """How many decodes so many tokens hold, and how many of the tokens these take."""
        rows = self._decodes.decodable()
        costs = 1 + self._decodes.grants(rows)
        before = np.cumsum(costs) - costs
        served = int(np.count_nonzero(before < tokens))
        return served, min(tokens, int(costs[:served].sum()))

    def readiness(self, now: float) -> Readiness:
        """What this rank tells the others of its group."""
        budget = self._policy.max_num_batched_tokens
        ahead = self._look(budget)
        table, pool = self._table, self._table.pool
        prefills = table.prefills()
        oldest_s = self._waiting.oldest_fresh_s()
        return Readiness(
            prefillable=ahead.rows > 0,
            ready=self._ready(ahead),
            pending_tokens=ahead.tokens,
            running_decodes=len(self._decodes.decodable()),
            usage=1 - pool.free / pool.size,
            partial=bool((table.scheduled[prefills] > table.begun[prefills]).any()),
            oldest_ms=0.0 if oldest_s is None else 1e3 * max(0.0, now - oldest_s),
        )

    def _ready(self, ahead: Prospect) -> bool:
        match self._policy.two_batch:
            case TwoBatch.BY_REQUEST:
                return ahead.rows >= 2
            case TwoBatch.BY_TOKEN:
                return ahead.longest >= self._policy.two_batch_min_tokens
        return ahead.rows > 0

    def _look(self, tokens: int) -> Prospect:
        """The prefills that fit into so many tokens."""
        ledger = self._admission.ledger(self._policy.max_num_batched_tokens, tokens)
        sizes = []
        for decision in self._prefills.decide(ledger, Gates(admissions=not self._resets.pending)):
            match decision:
                case Chunk(_, size) | Admit(_, _, size):
                    sizes.append(size)
                case Blocked():
                    break
        return Prospect(len(sizes), sum(sizes), max(sizes, default=0))
