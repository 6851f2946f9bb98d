"""The scheduler's core: which tokens of which requests are computed in which step.

It has no clock, no socket and no tensor: `now` is what its caller says, monotonic, in seconds. `submit`, `abort`,
`plan`, `settle` and the others make things happen; what output has to be told gathers until `take_emissions`. The same
calls with the same arguments give the same steps and emissions. At pipeline depth 2 a step is planned before
the results of the one before are known: the row table then knows lengths as bounds, and results of rows that have
ended or been preempted meanwhile fall on the floor.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...common.errors import ConfigError
from ...common.types import Finish
from ...ipc.messages import Abort, Detail, Hello, KvTransfer, ResetCache, RowError, TransferReport
from ...ipc.plan import MAX_TOLD_BLOCKS, StepShape, StepSlot
from ...ipc.request_ids import ingest_of
from .align.agreement import Agreement
from .align.gate import Gate, Open
from .cache.blocks import BlockPool, blocks_for
from .cache.prefix_cache import PrefixCache
from .cache.resets import Resets
from .cost import step_cost
from .deadlines import Deadlines
from .lives import Lives
from .planning.admission import Admission
from .planning.admitter import Admitter
from .planning.decodes import Decodes
from .planning.forecast import Forecast, Forecaster
from .planning.isolation import Isolation
from .planning.open_steps import OpenSteps
from .planning.planner import Planner
from .planning.preemption import Preemption
from .planning.prefills import Gates, Prefills
from .planning.step import OpenStep, StepBuilder
from .planning.step_rows import StepRows
from .policy import Policy
from .request import Phase, Request
from .results.emission import Emission, last_word
from .results.settling import Settling
from .rows import RowTable
from .state.checkpoints import Checkpoints
from .state.state_slots import StateSlots
from .statistics import CacheStats, SpecStats, Statistics
from .suspects import DEATHS_OF_THE_GUILTY, Suspects
from .transfer.connector import Connector, Role
from .transfer.held_orders import HeldOrders
from .transfer.promotion import Promotion
from .waiting import WaitingLine


class Counts(NamedTuple):
    """How many requests there are in each state."""

    running: int
    waiting: int
    parked: int


class Scheduler:
    """One scheduler for one executor that said `hello`, with the step slots that they share.

    Raises ConfigError if a request could have more blocks than a step can tell of.
    `gate` agrees with other ranks on when to prefill; `connector` moves KV between engines.
    """

    def __init__(
        self,
        policy: Policy,
        hello: Hello,
        slots: Sequence[StepSlot],
        gate: Gate | None = None,
        connector: Connector | None = None,
    ) -> None:
        widest = blocks_for(hello.max_model_len, hello.block_size)
        if widest > MAX_TOLD_BLOCKS:
            raise ConfigError(
                f"--block-size {hello.block_size} is too small for --max-model-len {hello.max_model_len}: "
                f"a request would have {widest} blocks, and may have {MAX_TOLD_BLOCKS}"
            )
        self.policy = policy
        self.max_model_len = hello.max_model_len
        self.block_size = hello.block_size
        self.statistics, self.cache_stats, self.spec_stats = Statistics(), CacheStats(), SpecStats(policy.drafts)
        self.state_slots = StateSlots(hello.state_slots)
        self.pool = BlockPool(
            hello.num_blocks,
            keep=policy.prefix_cache,
            events=policy.publish_events,
            on_evict=self.state_slots.drop,
            root=policy.root,
        )
        self.table = RowTable(
            policy.max_num_seqs,
            hello.max_model_len,
            hello.block_size,
            self.pool,
            one_step_a_row=policy.stages > 1,
        )
        self.waiting = WaitingLine()
        self.connector = connector or Connector(Role())
        self._shape = StepShape(policy.max_num_seqs, policy.max_num_batched_tokens, policy.drafts)
        self._open = OpenSteps(self.table, slots, policy.pipeline_depth)
        self._emissions: list[Emission] = []
        self._deadlines = Deadlines()
        self._held_orders = HeldOrders()
        self._suspects = Suspects()
        self._arrivals = itertools.count()
        self._last_prefill_s = 0.0
        self._last_settled_s = -math.inf
        self._assemble(policy, hello, gate or Open())

    def _assemble(self, policy: Policy, hello: Hello, gate: Gate) -> None:
        """Make the parts, from those that know little to those that use them."""
        table, pool, waiting, statistics = self.table, self.pool, self.waiting, self.statistics
        checkpoints = Checkpoints(table, pool, self.state_slots, policy.state_checkpoint_interval)
        admission = Admission(
            table, pool, self.state_slots, checkpoints, policy.max_num_seqs, policy.headroom_lookahead
        )
        cache = PrefixCache(table, pool, policy.root, enabled=policy.prefix_cache, tells=policy.publish_events)
        self._cache = cache
        self._lives = Lives(table, waiting, admission, checkpoints, cache, self.connector, statistics)
        self._preemption = Preemption(table, waiting, admission, statistics, checkpoints)
        self._isolation = Isolation(table, self._open, self._preemption)
        self._decodes = Decodes(table, self._preemption, policy.drafts)
        prefills = Prefills(table, waiting, admission, checkpoints, self.connector, policy)
        self._admitter = Admitter(table, waiting, cache, checkpoints, self.connector, statistics, self.cache_stats)
        step_rows = StepRows(table, checkpoints, hello.eos_token_ids, stateful=hello.state_slots > 0)
        self._planner = Planner(
            table,
            waiting,
            admission,
            self._preemption,
            self._decodes,
            prefills,
            self._admitter,
            step_rows,
            statistics,
            prefill_first=policy.prefill_first,
        )
        self._resets = Resets(table, self._lives, self.connector, self.state_slots)
        self._forecaster = Forecaster(table, waiting, admission, self._decodes, prefills, self._resets, policy)
        self._agreement = Agreement(gate, self._forecaster)
        eos_ids = np.array(hello.eos_token_ids, np.int32)
        self._settling = Settling(table, self._lives, cache, statistics, self.spec_stats, eos_ids)
        self._promotion = Promotion(table, self._lives, cache, self.connector, self._settling, statistics)

    # Requests come and go

    def submit(self, request: Request, now: float) -> None:
        """Take in a fresh request, or reject it at once if it can never run. Its id must not be in use."""
        assert request.rid not in self
        self.statistics.requests += 1
        request.arrival, request.arrived_s = next(self._arrivals), now
        request.token_limit = min(request.prompt_tokens + request.limits.max_tokens, self.max_model_len)
        refusal = self._refusal(request)
        if refusal:
            self.statistics.requests_rejected += 1
            request.phase = Phase.GONE
            self._cache.leave(request)
            self._say_last(request, Finish.REJECTED, refusal)
            return
        self._lives.begin(request)
        self._end_outgrown(request)
        if request.deadline_s < math.inf:
            self._deadlines.add(request.deadline_s, request.rid, self._lives.requests)

    def _refusal(self, request: Request) -> str:
        """Why a request can never run, or nothing."""
        if not 0 < request.prompt_tokens <= len(request.tokens) < self.max_model_len:
            return f"a prompt of {len(request.tokens)} tokens and a model length of {self.max_model_len}"
        if not self.policy.chunked and request.prompt_tokens > self.policy.max_num_batched_tokens:
            budget = self.policy.max_num_batched_tokens
            return f"a prompt of {request.prompt_tokens} tokens is not cut, and a step has {budget}"
        blocks = blocks_for(request.prompt_tokens, self.block_size)
        if blocks > self.pool.size:
            return f"the prompt needs {blocks} KV cache blocks and there are {self.pool.size}"
        if request.needs_state and not self.state_slots.count:
            return "the request needs 1 state slot and there are 0"
        return ""

    def abort(self, message: Abort, now: float) -> None:
        """End a request in whatever state it is. An id that is unknown or ended changes nothing.

        After STOP, which means that output found a stop string, output has said the last word itself.
        """
        request = self._lives.requests.get(message.rid)
        if request is None:
            return
        self._lives.end(request, message.reason, now)
        if message.reason is not Finish.STOP:
            self._say_last(request, message.reason)

    def abort_all(self, ingest: int, now: float) -> None:
        """End all requests of an ingest that has died: nobody waits for them any more."""
        for rid in [rid for rid in self._lives.requests if ingest_of(rid) == ingest]:
            self.abort(Abort(rid, Finish.ABORT, 0), now)

    def preempt(self, rid: int) -> None:
        """Take the blocks of a running request, which will be computed again."""
        request = self._lives.requests[rid]
        self._preemption.preempt(request.row)
        self._end_outgrown(request)

    def _end_outgrown(self, request: Request) -> None:
        """End a request that had filled the pool, alone, so that its last token has no place when it comes back."""
        if request.suspended and blocks_for(len(request.tokens), self.block_size) > self.pool.size:
            self._lives.end_waiting(request)
            self._say_last(request, Finish.LENGTH, "kv_capacity")

    def fetch(self, rid: int, now: float) -> None:
        """The rest of a running prefill's KV comes from elsewhere: it is parked until it is there.

        Its `remote` says from where. The pool must have the blocks that it lacks.
        """
        self._admitter.start_receiving(self._lives.requests[rid], now)

    def _say_last(self, request: Request, finish: Finish, text: str = "") -> None:
        self._emissions.append(last_word(request, finish, Detail(request.rid, text) if text else None))

    def expire(self, now: float) -> None:
        """End the requests that are past their deadline, and cancel the transfers that are."""
        self.connector.due(now)
        for rid in self._deadlines.due(now):
            self.abort(Abort(rid, Finish.TIMEOUT, 0), now)

    @property
    def next_due_s(self) -> float:
        """When a plan has something to do though nothing has happened: a deadline, or a transfer's time-out."""
        deadline = self._deadlines.next_s
        transfer = self.connector.next_due
        return deadline if transfer is None else min(deadline, transfer)

    # The executor starts again

    def restart(self, now: float) -> None:
        """The executor was replaced: what it held is lost, and no result of an open step will come.

        Every request goes on from its known tokens, at its place, unless it is what kills executors (suspects.py).
        """
        guilty = self._suspects.died(self.table.requests_of(self._open.rows()))
        self._open.forget()
        for row in self.table.in_order().tolist():
            request = self.table.request(row)
            self._preemption.suspend(row)
            self._end_outgrown(request)
        for request in guilty:
            if request.waits:
                self._lives.end(request, Finish.ERROR, now)
                self._say_last(request, Finish.ERROR, f"the executor died {DEATHS_OF_THE_GUILTY} times on this request")
        self._lives.forget_transfers()
        self._held_orders.forget()
        self._resets.forget()

    # The prefix cache is forgotten

    def reset_cache(self, message: ResetCache) -> None:
        """Forget the prefix cache; while requests run, reject that or, with `force`, do it when they have ended."""
        self._emissions += self._resets.ask(message)

    # Transfers of KV

    def transfer_report(self, *reports: TransferReport) -> None:
        """Workers of the executor have finished their parts of transfers; the next plan takes it up."""
        self.connector.hear(*reports)

    def take_transfers(self) -> list[KvTransfer]:
        """What the executor has to be told about transfers now.

        An order waits for the open steps whose rows have lost their blocks: they still write them.
        """
        orders = self.connector.take_orders()
        if orders:
            self._held_orders.put(orders, after=self._open.last_stray)
        return self._held_orders.take(self._open.first_unsettled)

    # Steps go out and come back

    def plan(self, now: float) -> OpenStep | None:
        """The next step, or None if there is nothing to do or the pipeline is full."""
        self._lives.let_ended_go()
        self._emissions += self._promotion.take_finished(now)
        self.expire(now)
        alone = self._suspects.alone()
        apart = alone is None or self._isolation.make_way(alone)
        self._emissions += self._resets.done_if_drained()
        if self._open.full or not apart:
            return None
        prefills = self._agreement.may_prefill(now)
        slot_number, slot = self._open.next_slot
        while True:
            builder = StepBuilder(slot, self._shape)
            gates = Gates(prefills, self._admits_fresh(now), not self._resets.pending, alone)
            preemptions = self.statistics.preemptions
            self._planner.fill(builder, gates, idle=not self._open, now=now)
            if not builder.empty:
                break
            # Others have room now if the row that filled the pool has ended, if the only row that the budget held
            # gave itself up, or if blocks that wait for somebody are free.
            if self._end_exhausted(now):
                self._emissions += self._resets.done_if_drained()
            elif self.statistics.preemptions == preemptions and (self._open or not self._let_go(prefills)):
                return None
        self._end_exhausted(now)
        step = builder.finish(self.statistics.steps_planned, slot_number, self.table, now)
        self._open.push(step)
        self.statistics.add_step(builder.prefill_tokens, step_cost(step.starts, step.counts))
        return step

    def _let_go(self, prefills: bool) -> bool:
        """Give up what is held for choices that wait, unless they only wait for a gate; false if nothing was held."""
        return (prefills or self._resets.pending) and self._lives.let_siblings_go()

    def agree(self, now: float) -> None:
        """Answer ranks that wait for this one, which plans nothing now. What they allow is done by the next plan."""
        self._agreement.answer(now)

    @property
    def held(self) -> bool:
        """Whether prefills wait for other ranks, and no step is open whose end would be the time to ask again."""
        return self._agreement.refused and not self._open and self.alive

    def _admits_fresh(self, now: float) -> bool:
        """Whether fresh requests have waited so long that many of them can be prefilled together."""
        if not self.policy.delay_factor or not self.table.running_count:
            return True
        oldest_s = self.waiting.oldest_fresh_s()
        return oldest_s is not None and now - oldest_s > self.policy.delay_factor * self._last_prefill_s

    def _end_exhausted(self, now: float) -> bool:
        """End the request that runs alone and that the pool cannot hold any longer; false if there is none."""
        row = self._decodes.take_exhausted()
        if row is None:
            return False
        request = self.table.request(row)
        kv = self._lives.end(request, Finish.LENGTH, now)
        self._emissions.append(last_word(request, Finish.LENGTH, Detail(request.rid, "kv_capacity", kv)))
        return True

    @property
    def next_settled(self) -> OpenStep | None:
        """The step whose results come next: they come in the order of planning."""
        return self._open.oldest

    def settle(self, errors: Sequence[RowError], now: float) -> None:
        """Take in the results of the oldest open step, which lie in its slot, and its failures."""
        step, slot = self._open.pop()
        if step.has_prefill:  # it ran from when the one before had ended
            self._last_prefill_s = now - max(step.planned_s, self._last_settled_s)
        self._last_settled_s = now
        if self._suspects:
            self._suspects.clear(self.table.rid[step.rows].tolist())
        self._emissions += self._settling.settle(step, slot, errors, now)

    def take_emissions(self) -> list[Emission]:
        """What output has to be told, since the last time."""
        emissions, self._emissions = self._emissions, []
        return emissions

    # Looking in

    def __contains__(self, rid: int) -> bool:
        """Whether a request with this id lives."""
        return rid in self._lives.requests

    @property
    def alive(self) -> bool:
        """Whether anything is left to do: a request, an open step, a transfer, a word for output."""
        return bool(
            self._lives.requests or len(self._open) or self.connector.open or self._lives.fenced
            or self._emissions or self._resets.pending
        )  # fmt: skip

    def counts(self) -> Counts:
        return Counts(self.table.running_count, len(self.waiting), self.table.parked_count)

    def forecast(self) -> Forecast:
        """What the next plan would do."""
        return self._forecaster.forecast()

    def check_counts(self) -> None:
        """Compare what is counted, which costs little however much is cached; raises AssertionError."""
        assert sum(self.counts()) == len(self._lives.requests), "requests were lost"
        self.pool.check_counts()
        self._open.check()

    def check(self) -> None:
        """Compare all books; raises AssertionError. With 160,000 blocks in the cache it takes 70 ms."""
        self.check_counts()
        self.table.check()
        self.pool.check(self._lives.held_blocks())
        self.connector.check()
        slots = self.table.state_slot
        self.state_slots.check(slots[slots >= 0].tolist())
