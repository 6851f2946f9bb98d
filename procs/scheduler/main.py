"""The scheduler process: wires, step slots and rings around the core, and its loop.

Nothing here decides anything. The loop blocks in one poll; it comes round by itself only for the
heartbeat, or soon when output has no room for tokens.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Mapping

import numpy as np

from ...common.errors import BadMessage
from ...common.types import State
from ...ipc.board import Row
from ...ipc.messages import FROM_EXECUTOR, FROM_INGEST, Abort, Emit, Hello, Opened, StepDone, Submit
from ...ipc.plan import StepShape, StepSlot, slots_for_depth, step_slots
from ...ipc.ring import TokenRing
from ...ipc.segment import ring_name, steps_name
from ...ipc.wire import Inbox, Outbox
from ..process import HEARTBEAT_MS, RETRY_MS, Process, run
from .core import Policy, Scheduler
from .emission import Emission
from .request import Request

MAX_WAITING_EMISSIONS = 64
"""So many steps' tokens may wait for room in the ring or on the wire to output; then planning stops."""

MAX_TICKET_BYTES = 1 << 20
"""An Emit carries at most so many bytes of tickets and one more ticket: a frame has a largest size."""


class SchedulerLoop:
    """One turn after the other: take messages, settle, plan, emit. Wires, slots and rings are given."""

    def __init__(
        self,
        policy: Policy,
        slots: tuple[StepSlot, ...],
        ingests: Mapping[Inbox, TokenRing],
        from_executor: Inbox,
        to_executor: Outbox,
        to_output: Outbox,
        token_ring: TokenRing,
    ) -> None:
        self.core: Scheduler | None = None
        self._policy = policy
        self._slots = slots
        self._ingests = ingests
        self._from_executor = from_executor
        self._to_executor = to_executor
        self._to_output = to_output
        self._token_ring = token_ring
        self._unsent: deque[Emission] = deque()

    @property
    def output_is_behind(self) -> bool:
        """Whether tokens wait for room in the ring. Room on the wire wakes the loop by itself."""
        return bool(self._unsent)

    def turn(self) -> None:
        """Handle what has arrived, and send what follows from it."""
        had_work = self.core is not None and self.core.has_work
        for message in self._from_executor.drain():
            self._hear_executor(message)
        if self.core is None:
            return
        for inbox, prompts in self._ingests.items():
            for message in inbox.drain():
                self._hear_ingest(self.core, inbox, prompts, message)
        self._emit(self.core)
        while self._may_plan and (step := self.core.plan()) is not None:
            self._to_executor.send(step.plan)
        self._emit(self.core)
        if had_work and not self.core.has_work:
            self.core.check()

    @property
    def _may_plan(self) -> bool:
        return len(self._unsent) + self._to_output.waiting < MAX_WAITING_EMISSIONS

    def _hear_executor(self, message: Hello | StepDone) -> None:
        if isinstance(message, Hello):
            if self.core is not None:
                self._from_executor.reject(BadMessage("a second Hello"))
                return
            self.core = Scheduler(self._policy, message, self._slots)
            return
        step = self.core.next_settled if self.core else None
        if self.core is None or step is None or (step.plan.step, step.plan.slot) != (message.step, message.slot):
            self._from_executor.reject(BadMessage(f"results of step {message.step}, which is not open"))
        elif not all(0 <= error.index < step.plan.rows for error in message.errors):
            self._from_executor.reject(BadMessage(f"an error of a row that step {message.step} has not"))
        else:
            self.core.settle(self._slots[message.slot].sampled[: step.plan.rows].copy(), message.errors)

    def _hear_ingest(self, core: Scheduler, inbox: Inbox, prompts: TokenRing, message: Submit | Abort) -> None:
        if isinstance(message, Abort):
            core.abort(message)
            return
        try:
            tokens = prompts.take(message.prompt_at, message.prompt_tokens)
            if message.rid in core:
                raise BadMessage(f"the request id {message.rid} is in use")
        except BadMessage as error:
            inbox.reject(error)
            return
        core.submit(
            Request(
                message.rid,
                message.epoch,
                message.prompt_tokens,
                tokens,
                message.sampling,
                message.limits,
                message.ticket,
            )
        )

    def _emit(self, core: Scheduler) -> None:
        """Send emissions in order, as far as the ring to output has room."""
        self._unsent.extend(core.take_emissions())
        while self._unsent:
            emission = self._unsent[0]
            position = self._token_ring.write(emission.tokens)
            if position is None:
                return
            self._unsent.popleft()
            *earlier, last = _portions(emission.opened)
            for opened in earlier:
                self._to_output.send(Emit(opened, b"", b"", position, 0, ()))
            counts = np.ones(len(emission.rids), np.int32)
            self._to_output.send(
                Emit(last, emission.rids.tobytes(), counts.tobytes(), position, len(counts), emission.ended)
            )

    def show(self, row: Row) -> None:
        """Put the numbers on the board."""
        core = self.core
        if core is None:
            return
        row["requests_running"], row["requests_waiting"] = core.counts()
        row["kv_blocks"], row["kv_blocks_free"] = core.pool.size, core.pool.free
        row["token_ring_tokens"] = self._token_ring.used
        for field in dataclasses.fields(core.statistics):
            row[field.name] = getattr(core.statistics, field.name)


def _portions(opened: tuple[Opened, ...]) -> list[tuple[Opened, ...]]:
    """Cut first words into portions of bounded size, in order; at least one, perhaps empty."""
    portions: list[list[Opened]] = [[]]
    size = 0
    for one in opened:
        if size > MAX_TICKET_BYTES:
            portions.append([])
            size = 0
        portions[-1].append(one)
        size += len(one.ticket)
    return [tuple(portion) for portion in portions]


def serve(process: Process) -> None:
    """Run until the process is told to stop."""
    config = process.config
    output, executor = process.peer("output"), process.peer("executor")
    shape = StepShape(config.max_num_seqs, config.max_num_batched_tokens)
    loop = SchedulerLoop(
        Policy(
            max_num_seqs=config.max_num_seqs,
            max_num_batched_tokens=config.max_num_batched_tokens,
            pipeline_depth=config.pipeline_depth,
        ),
        step_slots(process.memory(steps_name(process.name)), shape, slots_for_depth(config.pipeline_depth)),
        {
            process.inbox(ingest, *FROM_INGEST): TokenRing(process.memory(ring_name(ingest, process.name)))
            for ingest in process.peers("ingest")
        },
        process.inbox(executor, *FROM_EXECUTOR),
        process.outbox(executor),
        process.outbox(output),
        TokenRing(process.memory(ring_name(process.name, output))),
    )
    ready = False
    while not process.stopping:
        process.wait(RETRY_MS if loop.output_is_behind else HEARTBEAT_MS)
        loop.turn()
        loop.show(process.row)
        if loop.core is not None and not ready:
            ready = True
            process.report(State.READY, f"{loop.core.pool.size} KV blocks")


def main() -> None:
    run("scheduler", serve)


if __name__ == "__main__":
    main()
