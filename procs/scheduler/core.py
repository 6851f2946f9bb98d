"""The scheduler's core: which tokens of which requests are computed in which step.

It has no clock, no socket and no tensor. `submit`, `abort`, `plan` and `settle` make things happen; what
output has to be told gathers until `take_emissions`. The same calls with the same arguments give the same steps and
emissions. At pipeline depth 2 a step is planned before the results of the one before are known: the row
table then knows lengths as bounds, and results of rows that have ended or been preempted meanwhile fall on
the floor.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...common.types import Finish
from ...ipc.messages import Abort, Ended, Hello, RowError
from ...ipc.plan import StepShape, StepSlot
from ...ipc.ring import Tokens
from .admission import Admission, WaitingLine
from .blocks import BlockPool, blocks_for
from .emission import Emission, last_word, opening
from .planner import Planner
from .request import Phase, Request
from .rows import Rows, RowTable
from .statistics import Statistics
from .step import OpenStep, StepBuilder
from .stops import endings


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How the scheduler plans. `headroom_lookahead` tokens are kept free for each running request."""

    max_num_seqs: int
    max_num_batched_tokens: int
    pipeline_depth: int = 2
    headroom_lookahead: int = 64


class Scheduler:
    """One scheduler for one executor that said `hello`, with the step slots that they share."""

    def __init__(self, policy: Policy, hello: Hello, slots: Sequence[StepSlot]) -> None:
        self.statistics = Statistics()
        self._emissions: list[Emission] = []
        self.max_model_len = hello.max_model_len
        self.pool = BlockPool(hello.num_blocks)
        self.table = RowTable(policy.max_num_seqs, hello.max_model_len, hello.block_size, self.pool)
        self.waiting = WaitingLine()
        self._depth = policy.pipeline_depth
        self._shape = StepShape(policy.max_num_seqs, policy.max_num_batched_tokens)
        self._eos_ids = np.array(hello.eos_token_ids, np.int32)
        self._slots = slots
        self._free_slots = list(range(len(slots)))
        self._open: deque[OpenStep] = deque()
        self._requests: dict[int, Request] = {}
        self._arrivals = itertools.count()
        self._admission = Admission(self.table, self.pool, policy.max_num_seqs, policy.headroom_lookahead)
        self._planner = Planner(self.table, self.waiting, self._admission, hello.eos_token_ids)

    # Requests come and go

    def submit(self, request: Request) -> None:
        """Take in a fresh request, or reject it at once if it can never run. Its id must not be in use."""
        assert request.rid not in self
        self.statistics.requests += 1
        request.arrival = next(self._arrivals)
        request.total_limit = min(request.prompt_tokens + request.limits.max_tokens, self.max_model_len)
        refusal = self._refusal(request)
        if refusal:
            self.statistics.requests_rejected += 1
            self._say_last(request, Finish.REJECTED, refusal)
            return
        self._requests[request.rid] = request
        self.waiting.add(request)

    def _refusal(self, request: Request) -> str:
        """Why a request can never run, or nothing."""
        if not 0 < request.prompt_tokens < self.max_model_len:
            return f"a prompt of {request.prompt_tokens} tokens and a model length of {self.max_model_len}"
        blocks = blocks_for(request.prompt_tokens, self.table.block_size)
        if blocks > self.pool.size:
            return f"the prompt needs {blocks} KV cache blocks and there are {self.pool.size}"
        return ""

    def abort(self, message: Abort) -> None:
        """End a request in whatever state it is. An id that is unknown or ended changes nothing.

        After STOP, which means that output found a stop string, output has said the last word itself.
        """
        request = self._requests.get(message.rid)
        if request is None or request.epoch != message.epoch:
            return
        if request.phase is Phase.RUNNING:
            self._end_rows(np.array([request.row]))
        else:
            self.waiting.remove(request)
            self._forget(request)
        if message.reason is not Finish.STOP:
            self._say_last(request, message.reason)

    def _say_last(self, request: Request, finish: Finish, detail: str = "") -> None:
        self._emissions.append(last_word(request, finish, detail))

    def _end_rows(self, rows: Rows) -> None:
        """The requests of these rows have ended: rows and blocks are free at once."""
        requests = [self.table.request(row) for row in rows.tolist()]
        self.table.release_many(rows)
        for request in requests:
            self._forget(request)
        self._admission.finished(len(requests))

    def _forget(self, request: Request) -> None:
        request.phase = Phase.GONE
        del self._requests[request.rid]
        self.statistics.requests_finished += 1

    # Steps go out and come back

    def plan(self) -> OpenStep | None:
        """The next step, or None if there is nothing to do or the pipeline is full."""
        if len(self._open) >= self._depth:
            return None
        while True:
            builder = StepBuilder(self._slots[self._free_slots[-1]], self._shape)
            self._planner.fill(builder, idle=not self._open)
            if not self._settle_planner() or not builder.empty:
                break  # else the row that filled the pool has just ended, and others have room now
        if builder.empty:
            return None
        step = builder.finish(self.statistics.steps_planned, self._free_slots.pop(), self.table.generation)
        self.table.in_flight[step.rows] += step.counts
        self._open.append(step)
        self.statistics.steps_planned += 1
        self.statistics.prompt_tokens += step.plan.tokens
        return step

    def _settle_planner(self) -> bool:
        """Take over what planning did to requests: preemptions, and a request that the pool cannot hold.

        True if it ended one.
        """
        self.statistics.preemptions += self._planner.preemptions
        self.statistics.recomputed_tokens += self._planner.recomputed_tokens
        self._planner.preemptions = self._planner.recomputed_tokens = 0
        row = self._planner.take_exhausted()
        if row is None:
            return False
        request = self.table.request(row)
        self._end_rows(np.array([row]))
        self._say_last(request, Finish.LENGTH, "kv_capacity")
        return True

    @property
    def next_settled(self) -> OpenStep | None:
        """The step whose results come next: they come in the order of planning."""
        return self._open[0] if self._open else None

    def settle(self, sampled: Tokens, errors: Sequence[RowError] = ()) -> None:
        """Take in the results of the oldest open step: its rows' tokens (int32 [rows]) and failures."""
        step = self._open.popleft()
        self._free_slots.append(step.plan.slot)
        alive = self.table.generation[step.rows] == step.generations
        self.statistics.late_results += int(np.count_nonzero(step.samples & ~alive))
        rows = step.rows[alive]
        self.table.in_flight[rows] -= step.counts[alive]
        self.table.committed[rows] += step.counts[alive]
        for error in errors:
            if alive[error.index]:
                self._fail(int(step.rows[error.index]), error.cause)
                alive[error.index] = False
        samples = alive & step.samples
        if samples.any():
            self._extend(step.rows[samples], sampled[samples])

    def _fail(self, row: int, cause: str) -> None:
        request = self.table.request(row)
        self._end_rows(np.array([row]))
        self._say_last(request, Finish.ERROR, cause)

    def _extend(self, rows: Rows, tokens: Tokens) -> None:
        """Append one token to each row, and end the rows that it ends."""
        table = self.table
        table.tokens[rows, table.length[rows]] = tokens
        table.length[rows] += 1
        opened = tuple(opening(table.request(row)) for row in rows[~table.opened[rows]].tolist())
        table.opened[rows] = True
        rids = table.rid[rows]
        ended = list(endings(table, rows, tokens, self._eos_ids))
        self.statistics.generation_tokens += len(rows)
        if ended:
            self._end_rows(np.array([row for row, _ in ended]))
        words: tuple[Ended, ...] = tuple(word for _, word in ended)
        self._emissions.append(Emission(opened, rids, tokens, words))

    def take_emissions(self) -> list[Emission]:
        """What output has to be told, since the last time."""
        emissions, self._emissions = self._emissions, []
        return emissions

    # Looking in

    def __contains__(self, rid: int) -> bool:
        """Whether a request with this id lives."""
        return rid in self._requests

    @property
    def has_work(self) -> bool:
        """Whether any request is left, or a step is open."""
        return bool(self._requests or self._open)

    def counts(self) -> tuple[int, int]:
        """(running, waiting) requests."""
        return self.table.running_count, len(self.waiting)

    def check(self) -> None:
        """Compare all books; raises AssertionError."""
        self.table.check()
        running, waiting = self.counts()
        assert running + waiting == len(self._requests), "requests were lost"
        assert len(self._open) + len(self._free_slots) == len(self._slots), "step slots were lost"
        open_tokens = np.zeros_like(self.table.in_flight)
        for step in self._open:
            alive = self.table.generation[step.rows] == step.generations
            open_tokens[step.rows[alive]] += step.counts[alive]
        assert (open_tokens == self.table.in_flight).all(), "in_flight differs from the open steps"
