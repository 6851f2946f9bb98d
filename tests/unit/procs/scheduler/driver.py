"""Drives the scheduler's core with the fake executor, step by step, and keeps what every request was told."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence

import numpy as np

from fourstroke.common.types import Finish, TransferOutcome
from fourstroke.ipc.block_hash import chain
from fourstroke.ipc.messages import (
    Abort,
    CacheKeys,
    Detail,
    Hello,
    KvTransfer,
    Limits,
    Opened,
    ResetCache,
    Sampling,
    StepDone,
    Submit,
    TransferReport,
)
from fourstroke.ipc.plan import StepShape, StepSlot, slots_for_depth, step_slots
from fourstroke.procs.executor.fake import EOS_TOKEN_ID, VOCAB_SIZE, FakeRunner
from fourstroke.procs.scheduler.align.gate import Gate
from fourstroke.procs.scheduler.align.readiness import Readiness, Rule
from fourstroke.procs.scheduler.arrivals import requests_of
from fourstroke.procs.scheduler.core import Scheduler
from fourstroke.procs.scheduler.planning.step import OpenStep
from fourstroke.procs.scheduler.policy import Policy
from fourstroke.procs.scheduler.request import Request
from fourstroke.procs.scheduler.results.emission import Emission
from fourstroke.procs.scheduler.transfer.connector import Connector

from .fake_transfer import put_kv

GREEDY = Sampling(0.0, 0, 1.0, 0.0)


class Ended:
    """A last word: why, the stop id or -1, and the detail."""

    def __init__(self, finish: Finish, stop_token: int, detail: Detail | None) -> None:
        self.finish = finish
        self.stop_token = stop_token
        self.detail = detail.text if detail else ""
        self.kv = detail.kv if detail else None


class Switch:
    """A gate that a test opens and shuts. `views`: what it was told when it was asked."""

    def __init__(self) -> None:
        self.open = True
        self.views: list[Readiness] = []
        self.last = Rule.OPEN
        self.fired: Counter[Rule] = Counter()
        self.errors = 0

    def allow(self, view: Readiness, now: float) -> bool:
        self.views.append(view)
        return self.open


class Driver:
    """A core with the base set-up of small numbers: block 4, 10 blocks, 4 rows, budget 64, length 64, depth 1.

    `now` is the clock that the core is told. `policy` are further fields of Policy. The prefix cache is off.
    """

    def __init__(
        self,
        *,
        block_size: int = 4,
        blocks: int = 10,
        rows: int = 4,
        budget: int = 64,
        max_model_len: int = 64,
        depth: int = 1,
        headroom: int = 0,
        cache: bool = False,
        drafts: int = 0,
        state_slots: int = 0,
        gate: Gate | None = None,
        connector: Connector | None = None,
        accept: float = 0.7,
        **policy: object,
    ) -> None:
        shape = StepShape(rows, budget, drafts)
        slots = slots_for_depth(depth)
        self.slots = step_slots(bytearray(shape.memory_bytes(slots)), shape, slots)
        self.hello = Hello(blocks, block_size, max_model_len, VOCAB_SIZE, (EOS_TOKEN_ID,), state_slots)
        self.policy = Policy(
            max_num_seqs=rows,
            max_num_batched_tokens=budget,
            pipeline_depth=depth,
            headroom_lookahead=headroom,
            prefix_cache=cache,
            drafts=drafts,
            **policy,
        )
        self.core = Scheduler(self.policy, self.hello, self.slots, gate, connector)
        self.accept = accept
        self.runner = self.new_runner()
        self.depth = depth
        self.now = 0.0
        self.pending: deque[StepDone] = deque()
        self.outputs: dict[int, list[int]] = {}
        self.ended: dict[int, Ended] = {}
        self.opened: dict[int, int] = {}
        self.orders: list[KvTransfer] = []

    def new_runner(self) -> FakeRunner:
        rows, drafts = self.policy.max_num_seqs, self.policy.drafts
        return FakeRunner(self.slots, self.hello, rows, drafts=drafts, accept=self.accept)

    def submit(self, rid: int | Sequence[int], prompt: Sequence[int], max_tokens: int = 64, **fields: object) -> None:
        """Submit a request, or with several ids the choices of one prompt. See `make`."""
        for request in self.make(rid, prompt, max_tokens, **fields):
            self.core.submit(request, self.now)
        self.take()

    def make(
        self, rid: int | Sequence[int], prompt: Sequence[int], max_tokens: int = 64, **fields: object
    ) -> list[Request]:
        """A request, or with several ids the choices of one prompt; they are not submitted.

        `fields` are those of Limits, of Submit, `salt`, or of Request.
        """
        rids = (rid,) if isinstance(rid, int) else tuple(rid)
        limits = {name: fields.pop(name) for name in Limits.__dataclass_fields__ if name in fields}
        of_request = {name: fields.pop(name) for name in Request.__dataclass_fields__ if name in fields}
        tokens, keys = np.array(prompt, np.int32), of_request.pop("keys", CacheKeys(salt=fields.pop("salt", "")))
        images = of_request.pop("images", ())
        submit = Submit(
            rids=rids,
            seeds=tuple(range(len(rids))),
            prompt_at=0,
            prompt_tokens=len(tokens),
            digests=chain(tokens, self.hello.block_size, keys, images) if self.policy.prefix_cache else b"",
            keys=keys,
            sampling=of_request.pop("sampling", GREEDY),
            limits=Limits(max_tokens, **{"min_tokens": 0, "ignore_eos": True, "stop_token_ids": (), **limits}),
            priority=of_request.pop("priority", 0),
            timeout_s=fields.pop("timeout_s", 0.0),
            ticket=b"ticket",
            images=images,
            mrope=of_request.pop("mrope", b""),
            mrope_delta=of_request.pop("mrope_delta", 0),
            remote=of_request.pop("remote", None),
        )
        requests = self.requests(submit, tokens)
        for request in requests:
            for name, value in of_request.items():
                setattr(request, name, value)
        return requests

    def requests(self, submit: Submit, tokens: np.ndarray) -> list[Request]:
        return requests_of(
            submit,
            tokens,
            self.now,
            block_size=self.hello.block_size,
            prefix_cache=self.policy.prefix_cache,
            stateful=self.hello.state_slots > 0,
        )

    def request(self, rid: int) -> Request:
        return self.core._lives.requests[rid]

    def abort(self, rid: int, reason: Finish = Finish.ABORT) -> None:
        self.core.abort(Abort(rid, reason, 0), self.now)
        self.take()

    def reset_cache(self, rid: int, *, force: bool = False) -> None:
        self.core.reset_cache(ResetCache(rid, force, b"ticket"))
        self.take()

    def restart(self) -> None:
        """The executor dies with what it held and was doing, and another one starts."""
        self.core.restart(self.now)
        self.pending.clear()
        self.runner = self.new_runner()
        self.take()

    def report(self, rid: int, outcome: TransferOutcome, epoch: int | None = None) -> None:
        """A worker reports about the request's last transfer, or about one of another epoch."""
        last = [order.epoch for order in self.orders if order.rid == rid][-1] if epoch is None else epoch
        self.core.transfer_report(TransferReport(rid, last, outcome))
        self.take()

    def arrive(self, rid: int) -> None:
        """The KV of a request's prompt is in its blocks now as a prefill would leave it, and the worker says so."""
        (*_, blocks) = (order.blocks for order in self.orders if order.rid == rid)
        row, request = self.request(rid).row, self.request(rid)
        prompt = self.core.table.tokens[row, : request.prompt_tokens].tolist()
        put_kv(self.runner._memory, np.frombuffer(blocks, np.int32), prompt, request.images)
        self.report(rid, TransferOutcome.RECEIVED)

    def plan(self) -> OpenStep | None:
        """Plan a step and run it on the fake executor; its results wait until `settle`."""
        step = self.core.plan(self.now)
        self.orders += self.core.take_transfers()
        self.take()
        if step is not None:
            self.pending.append(self.runner.run(step.plan))
        return step

    def settle(self, *tokens: int | Sequence[int], drafts: Sequence[Sequence[int]] = ()) -> None:
        """Settle the oldest step, with its own results or with these tokens of its rows in their place.

        At depth 1 also with these `drafts`, which then lie ready in the executor.
        """
        done = self.pending.popleft()
        slot = self.slots[done.slot]
        if drafts:
            self._propose(slot, tokens, drafts)
        for index, of_row in enumerate(tokens):
            words = [of_row] if isinstance(of_row, int) else list(of_row)
            slot.sampled[index, : len(words)] = words
            slot.produced[index] = len(words)
        self.core.settle(done.errors, self.now)
        self.take()

    def _propose(self, slot: StepSlot, tokens: Sequence[int | Sequence[int]], drafts: Sequence[Sequence[int]]) -> None:
        cursors = self.runner._cursors
        for index, (of_row, drafted) in enumerate(zip(tokens, drafts, strict=True)):
            row = int(slot.row[index])
            cursors.pending[row, 0] = of_row if isinstance(of_row, int) else of_row[-1]
            cursors.propose(row, np.array(drafted, np.int32))
            slot.drafted[index] = len(drafted)

    def turn(self) -> bool:
        """Plan if possible; settle if the pipeline is full or nothing was planned. False if nothing is left."""
        step = self.plan()
        assert self.pending or not len(self.core.waiting), "somebody waits and nothing is under way"
        if self.pending and (step is None or len(self.pending) >= self.depth):
            self.settle()
        return self.core.alive

    def run(self, steps: int = 10_000) -> None:
        for _ in range(steps):
            if not self.turn():
                return
        raise AssertionError(f"work is left after {steps} turns")

    def take(self) -> None:
        """Take what the core has to say, and compare its books."""
        for emission in self.core.take_emissions():
            self.hear(emission)
        self.core.check()

    def hear(self, emission: Emission) -> None:
        """Keep what requests are told."""
        for opened in emission.first_words:
            self._open(opened)
        at = 0
        for rid, count in zip(emission.new.rids.tolist(), emission.new.counts.tolist(), strict=True):
            assert rid in self.opened and rid not in self.ended
            assert count > 0
            self.outputs.setdefault(rid, []).extend(emission.new.tokens[at : at + count].tolist())
            at += count
        assert at == len(emission.new.tokens)
        ended = emission.ended
        details = {detail.rid: detail for detail in ended.details}
        assert details.keys() <= set(ended.rids.tolist())
        for rid, finish, stop in zip(
            ended.rids.tolist(), ended.finishes.tolist(), ended.stop_tokens.tolist(), strict=True
        ):
            assert rid in self.opened and rid not in self.ended, "two last words"
            self.ended[rid] = Ended(Finish(finish), stop, details.get(rid))

    def _open(self, opened: Opened) -> None:
        assert opened.rid not in self.opened, "opened twice"
        self.opened[opened.rid] = opened.cached_tokens

    def counts_of(self, step: OpenStep | None) -> list[int]:
        """The planned tokens of each row of a step."""
        assert step is not None
        return step.counts.tolist()

    def rids_of(self, step: OpenStep | None) -> list[int]:
        """The requests of the rows of a step that has just been planned."""
        assert step is not None
        return self.core.table.rid[step.rows].tolist()

    def tokens_of(self, step: OpenStep | None) -> list[list[int]]:
        """The tokens that the plan itself carries for each row; none for a row that the executor knows."""
        assert step is not None
        slot = self.slots[step.plan.slot]
        counts = np.where(step.decodes & ~step.host_drafts, 0, step.counts).tolist()
        return [slot.tokens[at : at + count].tolist() for at, count in zip(step.token_starts, counts, strict=True)]
