"""A scheduler and everything around it, all faked, that compares after every event what must hold after any event.

The executor may fail and start again, workers move KV between engines, a gate refuses, the clock runs. What requests
are told is compared with the naive scheduler of model.py.
"""

from __future__ import annotations

import numpy as np

from fourstroke.common.types import Finish, TransferAction, TransferOutcome
from fourstroke.ipc.logprobs import unpack
from fourstroke.ipc.messages import NO_LOGPROBS, Abort, RemoteKv, Sampling, TransferReport
from fourstroke.procs.executor.fake import FakeRunner
from fourstroke.procs.scheduler.planning.decodes import MAX_SKIPPED
from fourstroke.procs.scheduler.planning.forecast import Forecast
from fourstroke.procs.scheduler.planning.step import OpenStep
from fourstroke.procs.scheduler.request import Phase, Request
from fourstroke.procs.scheduler.results.emission import Emission
from fourstroke.procs.scheduler.suspects import DEATHS_OF_THE_GUILTY
from fourstroke.procs.scheduler.transfer.connector import Connector, Role

from .cache.chains import told
from .crowd import POISON
from .driver import Driver
from .endings import check_end, for_life
from .model import Asked, Story
from .movers import Movers
from .surroundings import Events, Moody

TRANSFER_TIMEOUT_S = 5.0

FIRST_RESET = 1_000_000
"""Ids from here on are of resets of the cache."""


def forecast_of(step: OpenStep | None) -> Forecast:
    """What a forecast should have said of a step."""
    if step is None:
        return Forecast(0, 0, 0, 0)
    of_rows = np.where(step.decodes, 0, 1), np.where(step.decodes, 0, step.counts)
    decodes = step.decodes.sum(), step.counts[step.decodes].sum()
    return Forecast(*(int(column.sum()) for column in of_rows), *(int(number) for number in decodes))


class World(Driver):
    """A Driver with a gate that refuses up to `refusals` times running, and `workers` of the executor that move KV.

    `fails`: requests whose KV does not arrive end. `planned` counts steps in all worlds.
    """

    planned = 0

    def __init__(self, *, seed: int = 0, refusals: int = 0, workers: int = 0, fails: bool = False, **setup) -> None:
        self.moves = workers > 0
        self._workers, self._seed = max(1, workers), seed
        self.gate = Moody(refusals, seed) if refusals else None
        self.stories: dict[int, Story] = {}
        self.asked: dict[int, Request] = {}
        self.deadlines: dict[int, float] = {}
        self.resets: dict[int, bool] = {}
        self.silenced: dict[int, int] = {}
        self.aborted: set[int] = set()
        self.failing: set[int] = set()
        self.logprobs: dict[int, list[np.ndarray]] = {}
        self.prompt_logprobs: dict[int, list[np.ndarray]] = {}
        self.lives: dict[int, tuple[object, ...]] = {}
        self._audited: dict[int, np.ndarray] = {}
        self._events = Events()
        self._deaths: dict[int, int] = {}
        self._is_open: list[tuple[OpenStep, list[np.ndarray], set[int]]] = []
        both = Role(consumer=True, producer=True)
        super().__init__(
            gate=self.gate,
            connector=Connector(both, workers, TRANSFER_TIMEOUT_S, "here:1", fails) if workers else None,
            publish_events=True,
            **setup,
        )

    def new_runner(self) -> FakeRunner:
        """An executor, and its workers that move KV."""
        self._seed += 1
        rows, drafts, poison = self.policy.max_num_seqs, self.policy.drafts, frozenset([POISON])
        runner = FakeRunner(self.slots, self.hello, rows, 0.0, drafts, self.accept, self._seed, poison)
        cache, size = runner._memory._cache, self.hello.block_size
        self.movers = Movers(self._workers, self._seed, cache, size, self.stories)
        return runner

    # What happens

    def ask(
        self,
        rids: tuple[int, ...],
        asked: Asked,
        *,
        salt: str = "",
        priority: int = 0,
        timeout_s: float = 0.0,
        remote: RemoteKv | None = None,
        logprobs: int = NO_LOGPROBS,
        prompt_logprobs: int = NO_LOGPROBS,
    ) -> None:
        """Submit a request, or the choices of one prompt."""
        story = Story(asked, self.hello.max_model_len)
        sampling = Sampling(0.0, 0, 1.0, 0.0, logprobs=logprobs, prompt_logprobs=prompt_logprobs)
        names = ("max_tokens", "min_tokens", "ignore_eos", "stop_token_ids", "stop_sequences")
        limits = {name: getattr(asked, name) for name in names}
        media = {"images": asked.images, "mrope": asked.mrope, "mrope_delta": asked.mrope_delta}
        others = {"salt": salt, "priority": priority, "timeout_s": timeout_s, "remote": remote, "sampling": sampling}
        for request in self.make(rids, asked.prompt, **limits, **media, **others):
            rid = request.rid
            self.stories[rid], self.asked[rid] = story, request
            self.core.submit(request, self.now)
            self.lives[rid] = for_life(request)
            if timeout_s:
                self.deadlines[rid] = self.now + timeout_s
        self.take()

    def end(self, rid: int, reason: Finish = Finish.ABORT) -> None:
        """Abort a request, or, with STOP, say that output has found a stop string and said the last word."""
        if reason is Finish.STOP and not self.outputs.get(rid):
            return
        lives = rid in self.core
        if lives and reason is Finish.STOP:
            self.silenced[rid] = len(self.outputs.get(rid, ()))
        elif lives:
            self.aborted.add(rid)
        self.core.abort(Abort(rid, reason, 0), self.now)
        assert rid not in self.core or not lives
        self.take()

    def reset(self, force: bool) -> None:
        rid = FIRST_RESET + len(self.resets)
        self.resets[rid] = force or not (self.core._lives.requests or self.core.connector.open)
        self.reset_cache(rid, force=force)
        assert self.resets[rid] or self.ended[rid].finish is Finish.REJECTED

    def restart(self) -> None:
        """Whoever was in an open step three times in a row, with no result between, is taken for the cause."""
        for rid in {int(rid) for step, _, _ in self._is_open for rid in self.core.table.rid[step.rows]}:
            self._deaths[rid] = 1 + self._deaths.get(rid, 0)
        self.failing |= {rid for rid, deaths in self._deaths.items() if deaths >= DEATHS_OF_THE_GUILTY}
        self._is_open.clear()
        super().restart()

    def preempt(self, rid: int) -> None:
        self.core.preempt(rid)
        self.take()

    def agree(self) -> None:
        """Other ranks want to know whether this one prefills."""
        self.core.agree(self.now)
        self.take()

    def tick(self) -> None:
        """One tick of the workers goes by."""
        reports = self.movers.tick()
        for report in reports:
            self.core.transfer_report(report)
        if reports:
            self.take()

    def rumour(self, rid: int, epoch: int, outcome: TransferOutcome, worker: int) -> None:
        """A report that fits nothing: it changes nothing and is counted."""
        if (rid, epoch) in self.core.connector._open:
            worker = 7
        dropped = self.core.connector.dropped
        self.core.transfer_report(TransferReport(rid, epoch, outcome, worker))
        assert self.core.connector.dropped == dropped + 1
        self.take()

    def miscount(self) -> None:
        """In the oldest open step the executor has sampled more than it may, in the first row that samples."""
        if not self._is_open:
            return
        step = self._is_open[0][0]
        for index in np.flatnonzero(step.samples)[:1].tolist():
            row = int(step.rows[index])
            self.slots[step.plan.slot].produced[index] = step.drafts[index] + 2
            if self.core.table.generation[row] == step.generations[index]:
                self.failing.add(int(self.core.table.rid[row]))

    def plan(self) -> OpenStep | None:
        forecast = self.core.forecast() if self._is_foreseeable() else None
        preemptions, ended = self.core.statistics.preemptions, len(self.ended)
        step = super().plan()
        if forecast and preemptions == self.core.statistics.preemptions and ended == len(self.ended):
            assert forecast_of(step) == forecast, "the plan is not what was forecast"
        if step is not None:
            World.planned += 1
            self._look_at(step)
        return step

    def _is_foreseeable(self) -> bool:
        """Whether the next plan can be forecast: no gate, nobody left out too often, nothing shared, blocks enough."""
        core = self.core
        rows = core._decodes.decodable()
        lengths = core.table.scheduled[rows] + 1 + core._decodes.grants(rows)
        gated = self.gate or self.policy.delay_factor or core._resets.pending or core._suspects.alone()
        gated = gated or len(self.pending) == self.depth
        overdue = core._planner._overdue or (self.policy.prefill_first and core.table.skipped[rows].max(initial=0) >= 8)
        shares = self.policy.prefix_cache or any(one.siblings for one in core._lives.requests.values())
        return not (gated or overdue or shares or self.moves or core.table.lacking(rows, lengths).any())

    def settle(self) -> None:
        if not self.pending:
            return
        step, planned, _ = self._is_open.pop(0)
        assert all(np.array_equal(now, then) for now, then in zip(self._arrays(step), planned, strict=True)), (
            "a plan has changed after it was made"
        )
        for rid in self.core.table.rid[step.rows].tolist():
            self._deaths.pop(rid, None)
        super().settle()

    def turn(self) -> bool:
        """One round as the process does it: reports, a plan, and results if no more can be planned."""
        if self.moves:
            self.tick()
        step = self.plan()
        refused = self.gate is not None and self.gate.refused
        under_way = step or self.pending or self.core.connector.open or refused
        assert under_way or not self.core.alive, "something is left and nothing happens"
        if step is None or len(self.pending) >= self.depth:
            self.settle()
        return self.core.alive

    # What must hold

    def take(self) -> None:
        before = len(self.ended)
        super().take()
        orders = [*self.orders, *self.core.take_transfers()]
        self.orders.clear()
        for order in orders:
            if order.action is TransferAction.RECEIVE:
                for _, _, written in self._is_open:
                    assert not written & set(np.frombuffer(order.blocks, "<i4").tolist()), (
                        "given to a transfer while an open step writes"
                    )
        self.movers.take(orders, self.outputs)
        for event in told(self.core.pool):
            self._events.hear(event)
        assert self._events.parents.keys() == self.core.pool._residency._entry_of.keys(), "events tell another story"
        if any(rid >= FIRST_RESET and self.resets[rid] for rid in list(self.ended)[before:]):
            assert not self.core.pool.index_size, "the cache was not forgotten"
        for request in self.core._lives.requests.values():
            self._audit(request)

    def hear(self, emission: Emission) -> None:
        super().hear(emission)
        for kept, packed in (
            (self.logprobs, emission.new.logprobs),
            (self.prompt_logprobs, emission.prompt_logprobs),
        ):
            for rid, words in unpack(packed).items():
                kept.setdefault(rid, []).extend(words)

    def _audit(self, request: Request) -> None:
        """A live request holds what it may hold in its state, and knows its prompt and its outputs and nothing else."""
        table, rid, row = self.core.table, request.rid, request.row
        if request.phase in (Phase.RUNNING, Phase.PARKED):
            assert table.requests[row] is request
            assert (table.state_slot[row] >= 0) == request.needs_state
            tokens = table.tokens[row, : table.length[row]]
        else:
            assert request.phase in (Phase.FRESH, Phase.PREEMPTED)
            tokens = request.tokens
            if tokens is self._audited.get(rid):
                return
            assert request not in table.requests
            self._audited[rid] = tokens
        assert rid not in self.ended and rid not in self.silenced
        known = request.prompt_tokens + len(self.outputs.get(rid, ()))
        assert request.phase is not Phase.FRESH or known == request.prompt_tokens
        text = self.stories[rid].text[:known]
        assert tokens.tobytes() == text.tobytes(), "a token list holds something else than the text so far"

    def _look_at(self, step: OpenStep) -> None:
        """A step that was just planned keeps to the limits, and says and writes only what it may."""
        policy, table, size = self.policy, self.core.table, self.hello.block_size
        assert 0 < len(step.rows) == len(set(step.rows.tolist())) <= policy.max_num_seqs
        assert step.counts.sum() <= policy.max_num_batched_tokens
        assert (step.counts[step.decodes] == 1 + step.drafts[step.decodes]).all() and (step.counts > 0).all()
        assert (step.drafts <= np.where(step.decodes, policy.drafts, 0)).all()
        assert table.running[step.rows].all() and (step.samples | ~step.decodes).all()
        assert table.skipped[table.in_order()].max() <= MAX_SKIPPED + policy.max_num_seqs, "a decode starves"
        columns = zip(step.rows, step.starts, step.counts, step.drafts, step.decodes, self.tokens_of(step), strict=True)
        incoming, all_written = self.movers.incoming, set()
        for row, start, count, drafts, decodes, given in columns:
            story = self.stories[int(table.rid[row])]
            known = max(0, len(given) - drafts)
            assert given[:known] == story.text[start : start + known].tolist()
            assert decodes or start < table.target[row], "a prefill behind its target"
            first = table.committed[row] if decodes else start
            written = table.tables[row, first // size : (start + count - 1) // size + 1]
            assert (self.core.pool.holders[written] == 1).all(), "a block that others can read is written"
            all_written.update(written.tolist())
        assert not incoming & all_written, "a block that is being received is written"
        self._is_open.append((step, self._arrays(step), all_written))

    def _arrays(self, step: OpenStep) -> list[np.ndarray]:
        """All numbers of a plan, copied."""
        slot, plan = self.slots[step.plan.slot], step.plan
        of_rows = [slot.row, slot.start, slot.count, slot.drafts, slot.flags, slot.next, slot.delta]
        of_blocks = [slot.block_row, slot.block_index, slot.block_id]
        return [
            *(column[: plan.rows].copy() for column in of_rows),
            *(column[: plan.blocks].copy() for column in of_blocks),
            slot.tokens[: plan.tokens].copy(),
            step.rows.copy(),
            step.counts.copy(),
        ]

    # The end

    def run_out(self) -> None:
        """Go on until nothing is left; then everything is free, and everybody was told what was to be told.

        A turn computes a token at least, but for those in which a gate refuses or a transfer is waited for; some tokens
        are computed again. More than 1.3 turns for each token were never needed.
        """
        stories = [self.stories[rid] for rid in self.core._lives.requests]
        patience = 100 + 3 * sum(len(story.text) for story in stories)
        while self.core.alive:
            assert patience, f"{self.core.counts()} starve"
            patience -= 1
            self.now += 0.25
            self.turn()
        check_end(self)
