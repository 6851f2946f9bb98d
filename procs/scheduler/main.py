"""The scheduler process: wires, step slots and rings around the core, and its loop.

Nothing here decides anything. The loop blocks in one poll; it comes round by itself only for the
heartbeat, or soon when output has no room for tokens.
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Protocol, cast

from ...common.errors import BadMessage, ConfigError
from ...common.types import State, number_of, role_of
from ...ipc.block_hash import root
from ...ipc.board import Row
from ...ipc.collective import Collective
from ...ipc.messages import (
    DIGEST_BYTES,
    FROM_EXECUTOR,
    FROM_INGEST,
    Abort,
    Began,
    Hello,
    ResetCache,
    StepDone,
    Submit,
    TransferReport,
)
from ...ipc.plan import StepShape, StepSlot, slots_for_depth, step_slots
from ...ipc.ring import TokenRing
from ...ipc.segment import steps_name
from ...ipc.shared_collective import SEGMENT, SharedCollective
from ...ipc.wire import Inbox, Outbox
from ..process import HEARTBEAT_MS, RETRY_MS, Process, run
from .align.gate import Gate, gate_for
from .announcer import Announcer
from .arrivals import requests_of
from .core import Scheduler
from .outputs import Outputs, OutputWay
from .policy import Policy

log = logging.getLogger("fourstroke")

CHECK_EVERY_S = 60.0
"""All books are compared when the last request ends, but not more often than this: they grow with the cache."""


class Rank(Collective, Protocol):
    """A place in a group of schedulers that begin ticks and wait for each other in them."""

    def is_called(self) -> bool:
        """Whether another rank has begun a tick and waits for this one."""
        ...

    def close(self) -> None:
        """Leave the group."""
        ...


Join = Callable[[], tuple[Rank, Gate]]
"""Enters the group, which waits for this scheduler in each tick from then on."""


class SchedulerLoop:
    """One turn after the other: take messages, settle, plan, emit. Wires, slots and rings are given."""

    def __init__(
        self,
        policy: Policy,
        slots: tuple[StepSlot, ...],
        ingests: Mapping[Inbox, TokenRing],
        from_executor: Inbox,
        to_executor: Outbox,
        outputs: Outputs,
        clock: Callable[[], float] = time.monotonic,
        join: Join | None = None,
        announcer: Announcer | None = None,
    ) -> None:
        """`join`: there are other schedulers, and their gate is asked before prefills. `announcer`: the world is told
        of the cache.
        """
        self.core: Scheduler | None = None
        self._hello: Hello | None = None
        self._executors_life = 0
        self._policy = policy
        self._slots = slots
        self._ingests = ingests
        self._from_executor = from_executor
        self._to_executor = to_executor
        self._outputs = outputs
        self._clock = clock
        self._join = join
        self._announcer = announcer
        self._rank: Rank | None = None
        self._gate: Gate | None = None
        self._check_due_s = -math.inf

    @property
    def output_is_behind(self) -> bool:
        """Whether tokens wait for room that nobody tells of."""
        return self._outputs.behind

    def wait_s(self, most: float) -> float:
        """How long the loop may wait for messages: until a deadline, `most` seconds at most.

        Prefills that are held while nothing runs here are asked for again soon: there may be nobody else who asks.
        """
        if self.core is None:
            return most
        if self.core.held:
            most = RETRY_MS / 1000
        if self._announcer is not None and self.core.pool.bulletin is not None:
            most = min(most, self._announcer.wait_s(self.core.pool.bulletin))
        return min(most, max(0.0, self.core.next_due_s - self._clock()))

    def turn(self) -> None:
        """Handle what has arrived, and send what follows from it."""
        was_alive = self.core is not None and self.core.alive
        self._hear_executor(self._from_executor.drain())
        core = self.core
        if core is None:
            return
        for inbox, prompts in self._ingests.items():
            for message in inbox.drain():
                self._hear_ingest(core, inbox, prompts, message)
        core.expire(self._clock())
        self._outputs.send(core.take_emissions())
        while self._may_plan(core) and (step := core.plan(self._clock())) is not None:
            self._to_executor.send(step.plan)
        if self._rank is not None and self._rank.is_called():  # no plan has asked the gate; others wait for the answer
            core.agree(self._clock())
        for order in core.take_transfers():
            self._to_executor.send(order)
        self._outputs.send(core.take_emissions())
        if self._announcer is not None and core.pool.bulletin is not None:
            self._announcer.announce(core.pool.bulletin)
        self._log_statistics(core)
        if was_alive and not core.alive:
            self._check(core)

    def _may_plan(self, core: Scheduler) -> bool:
        """Whether output has room, and there is a reason to plan if others have to take part in that."""
        return self._outputs.have_room and (self._rank is None or core.alive)

    def _hear_executor(self, messages: Iterable[Hello | StepDone | TransferReport]) -> None:
        """In the order in which they came; reports that came together are heard together."""
        for kind, alike in itertools.groupby(messages, type):
            if kind is TransferReport and self.core is not None:
                self.core.transfer_report(*cast(Iterable[TransferReport], alike))
            else:
                for message in alike:
                    self._hear_one(message)

    def _hear_one(self, message: Hello | StepDone | TransferReport) -> None:
        if isinstance(message, Hello):
            self._greet(message)
        elif self.core is not None and isinstance(message, StepDone):
            self._settle(self.core, message)
        # What comes before Hello is about steps of a scheduler that has died.

    def _greet(self, hello: Hello) -> None:
        """An executor has started; if it is not the first one, the requests go on with it.

        It says so once, or twice to a scheduler that asked it when it was about to. Raises ConfigError if it is
        not like the one before: what requests may be is known to all by now.
        """
        life, self._executors_life = self._executors_life, self._from_executor.senders_life
        if self.core is None:
            self._hello = hello
            if self._join is not None:
                self._rank, self._gate = self._join()
            self.core = Scheduler(self._policy, hello, self._slots, self._gate)
        elif life == self._executors_life:
            if hello != self._hello:
                self._from_executor.reject(BadMessage("an executor that says of itself now this, now that"))
        elif hello == self._hello:
            self.core.restart(self._clock())
        else:
            raise ConfigError(f"the executor was replaced by one of other sizes: {hello}, not {self._hello}")

    def _settle(self, core: Scheduler, done: StepDone) -> None:
        step = core.next_settled
        if step is None or (step.plan.step, step.plan.slot) != (done.step, done.slot):
            self._from_executor.reject(BadMessage(f"results of step {done.step}, which is not open"))
        elif not all(0 <= error.index < step.plan.rows for error in done.errors):
            self._from_executor.reject(BadMessage(f"an error of a row that step {done.step} has not"))
        else:
            core.settle(done.errors, self._clock())

    def _hear_ingest(
        self, core: Scheduler, inbox: Inbox, prompts: TokenRing, message: Submit | Abort | ResetCache | Began
    ) -> None:
        match message:
            case Began():
                core.abort_all(number_of(inbox.peer), self._clock())
            case Abort():
                core.abort(message, self._clock())
            case ResetCache():
                core.reset_cache(message)
            case Submit():
                try:
                    self._submit(core, prompts, message)
                except BadMessage as error:
                    inbox.reject(error)

    def _submit(self, core: Scheduler, prompts: TokenRing, submit: Submit) -> None:
        """Hand over the requests of a Submit. Raises BadMessage if they cannot be."""
        now = self._clock()
        tokens = prompts.take(submit.prompt_at, submit.prompt_tokens + submit.generated_tokens)
        if any(rid in core for rid in submit.rids):
            raise BadMessage(f"a request id of {submit.rids} is in use")
        if len(submit.digests) > DIGEST_BYTES * (submit.prompt_tokens // core.block_size):
            raise BadMessage(f"{len(submit.digests)} bytes of digests for {submit.prompt_tokens} tokens")
        requests = requests_of(
            submit,
            tokens,
            now,
            block_size=core.block_size,
            prefix_cache=core.policy.prefix_cache,
            stateful=core.state_slots.count > 0,
        )
        for request in requests:
            core.submit(request, now)

    def _check(self, core: Scheduler) -> None:
        """Compare the books, now that nothing is under way. Raises AssertionError."""
        core.check_counts()
        now = self._clock()
        if now >= self._check_due_s:
            core.check()
            self._check_due_s = now + CHECK_EVERY_S

    def _log_statistics(self, core: Scheduler) -> None:
        for line in (core.cache_stats.take_line(), core.spec_stats.take_line()):
            if line is not None:
                log.info("%s", line)

    def close(self) -> None:
        """Have the others go on without this one."""
        if self._rank is not None:
            self._rank.close()

    def show(self, row: Row) -> None:
        """Put the numbers on the board."""
        core = self.core
        if core is None:
            return
        row["requests_running"], row["requests_waiting"], row["requests_parked"] = core.counts()
        row["kv_blocks"], row["kv_blocks_free"] = core.pool.size, core.pool.free
        row["token_ring_tokens"] = self._outputs.ring_tokens
        row["cache_queries"] = core.cache_stats.total_requests
        row["cache_hit_tokens"] = core.cache_stats.total_cached_tokens
        row["cache_query_tokens"] = core.cache_stats.total_full_tokens
        row["draft_tokens"] = core.spec_stats.total_draft_tokens
        row["accepted_draft_tokens"] = core.spec_stats.total_accepted
        row["transfers_open"], row["transfer_reports_dropped"] = core.connector.open, core.connector.dropped
        if self._gate is not None:
            row["alignment_held"] = sum(count for rule, count in self._gate.fired.items() if not rule.allows)
            row["alignment_errors"] = self._gate.errors
        for field in dataclasses.fields(core.statistics):
            row[field.name] = getattr(core.statistics, field.name)


def serve(process: Process) -> None:
    """Run until the process is told to stop."""
    config = process.config
    executor = process.peer("executor")
    shape = StepShape(config.max_num_seqs, config.max_num_batched_tokens, config.num_speculative_tokens)
    loop = SchedulerLoop(
        Policy(
            max_num_seqs=config.max_num_seqs,
            max_num_batched_tokens=config.max_num_batched_tokens,
            pipeline_depth=config.pipeline_depth,
            prefill_first=config.policy == "prefill-first",
            chunked=config.chunked_prefill,
            prefix_cache=config.prefix_cache,
            long_prefill_threshold=config.long_prefill_threshold,
            delay_factor=config.scheduler_delay_factor,
            drafts=config.num_speculative_tokens,
            publish_events=config.kv_events,
            root=root(config.kv_events_hash_seed),
        ),
        step_slots(process.memory(steps_name(process.name)), shape, slots_for_depth(config.pipeline_depth)),
        {process.inbox(ingest, *FROM_INGEST): process.ring_from(ingest) for ingest in process.peers("ingest")},
        process.inbox(executor, *FROM_EXECUTOR),
        process.outbox(executor),
        Outputs([_way_to(process, output) for output in process.peers("output")]),
        join=(lambda: _join(process)) if config.aligned else None,
        announcer=_announcer(process) if config.kv_events else None,
    )
    process.live()
    try:
        _run(process, loop)
    finally:
        loop.close()


def _way_to(process: Process, output: str) -> OutputWay:
    return OutputWay(process.outbox(output), process.ring_to(output))


def _announcer(process: Process) -> Announcer:
    publisher = process.peer("publisher")
    outbox, rows = process.outbox(publisher), process.board
    return Announcer(outbox, rows.row(publisher), process.row, process.config.kv_events_queue)


def _join(process: Process) -> tuple[Rank, Gate]:
    """Enter the group of all schedulers. Its calls end the process's `wait`."""
    assignment = process.assignment
    size = sum(role_of(name) == assignment.role for name in assignment.board)
    rank = SharedCollective(process.memory(SEGMENT), Path(assignment.socket_folder), assignment.index, size)
    process.watch(rank)
    return rank, gate_for(process.config, rank)


def _run(process: Process, loop: SchedulerLoop) -> None:
    ready = False
    while not process.stopping:
        process.wait(RETRY_MS if loop.output_is_behind else math.ceil(1000 * loop.wait_s(HEARTBEAT_MS / 1000)))
        loop.turn()
        loop.show(process.row)
        if loop.core is not None and not ready:
            ready = True
            process.report(State.READY, f"{loop.core.pool.size} KV blocks")


def main() -> None:
    run("scheduler", serve)


if __name__ == "__main__":
    main()
