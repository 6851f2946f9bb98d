"""The executor's loop, whatever runs the plans: the model (runner.py, device/runner.py) or an invention (fake.py).

A step may end later than its launch returns: on a GPU the next one is launched meanwhile. Knows no torch.
"""

from __future__ import annotations

import dataclasses
import signal
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

from ...common.config import Config
from ...common.errors import BadMessage
from ...common.types import State, TransferAction, TransferOutcome
from ...ipc.board import Row
from ...ipc.messages import TO_EXECUTOR, Began, Hello, KvTransfer, StepDone, StepPlan, TransferReport
from ...ipc.plan import StepShape, StepSlot, slots_for_depth, step_slots
from ...ipc.segment import steps_name
from ...ipc.wire import Inbox, Outbox
from ..process import HasFileno, Process


class PlanRunner(Protocol):
    """What runs step plans, one after the other, in the order in which they come."""

    @property
    def hello(self) -> Hello: ...

    @property
    def ends(self) -> HasFileno | None:
        """What becomes readable when a step has ended; None where each has when `launch` returns."""
        ...

    def launch(self, plan: StepPlan) -> None:
        """Begin a step. Raises BadMessage, and changes nothing, if it cannot."""
        ...

    def collect(self) -> StepDone | None:
        """The next step that has ended, its results in its slot; None while there is none."""
        ...


class Synchronous(Protocol):
    """What runs a step from its beginning to its end in one call."""

    @property
    def hello(self) -> Hello: ...

    def run(self, plan: StepPlan) -> StepDone:
        """Run a step and leave its results in its slot. Raises BadMessage, and changes nothing, if it cannot."""
        ...


class AtOnce:
    """A synchronous runner as a PlanRunner."""

    ends = None

    def __init__(self, runner: Synchronous) -> None:
        self.hello = runner.hello
        self._runner = runner
        self._ended: deque[StepDone] = deque()

    def launch(self, plan: StepPlan) -> None:
        self._ended.append(self._runner.run(plan))

    def collect(self) -> StepDone | None:
        return self._ended.popleft() if self._ended else None


class ExecutorLoop:
    """What becomes of each message; the results go out."""

    def __init__(self, runner: PlanRunner, inbox: Inbox, outbox: Outbox, row: Row) -> None:
        self._runner = runner
        self._inbox = inbox
        self._outbox = outbox
        self._row = row
        self._began_ns: deque[int] = deque()
        self._ended_ns = 0
        self._is_late = False

    def turn(self) -> None:
        """Take one message: the next plan is there when a step ends, so there is one turn for each.

        None is taken while steps of a scheduler that has died are under way: they read and write slots of the next one.
        """
        for message in () if self._is_late else self._inbox.drain(1):
            match message:
                case Began():
                    self._is_late = True
                case KvTransfer():
                    self._outbox.send(refusal(message))
                case _:
                    self._launch(message)
        while (done := self._runner.collect()) is not None:
            self._finish(done)
        if self._is_late and not self._began_ns:
            self._is_late = False
            self._outbox.send(self._runner.hello)

    def _launch(self, plan: StepPlan) -> None:
        self._began_ns.append(time.monotonic_ns())
        row = self._row
        row["step_began"], row["step"] = self._began_ns[0], plan.step
        row["step_rows"], row["step_tokens"] = plan.rows, plan.tokens
        try:
            self._runner.launch(plan)
        except BadMessage as error:
            self._began_ns.pop()
            self._inbox.reject(error)
            self._row["step_began"] = self._began_ns[0] if self._began_ns else 0

    def _finish(self, done: StepDone) -> None:
        """Answer for a step. Its time is that since it was launched, or since the one before it ended."""
        row, now_ns = self._row, time.monotonic_ns()
        began_ns = max(self._began_ns.popleft(), self._ended_ns)
        self._ended_ns = now_ns
        row["step_began"] = self._began_ns[0] if self._began_ns else 0
        if not self._is_late:
            self._outbox.send(done)
        row.add("steps_run")
        row.add("step_seconds", now_ns - began_ns)
        row.add("row_errors", len(done.errors))


def refusal(transfer: KvTransfer) -> TransferReport:
    """The answer of an executor that moves no KV: nothing begins, and nothing is left of what is cancelled."""
    if transfer.action is TransferAction.CANCEL:
        return TransferReport(transfer.rid, transfer.epoch, TransferOutcome.CANCELLED)
    return TransferReport(transfer.rid, transfer.epoch, TransferOutcome.FAILED, detail="this executor moves no KV")


def config_of(process: Process) -> Config:
    """The configuration. Who takes the place of another has as many KV blocks: the scheduler counts on them."""
    before = process.row["num_blocks"]
    return dataclasses.replace(process.config, num_blocks=before) if before else process.config


def serve_plans(process: Process, load: Callable[[tuple[StepSlot, ...]], PlanRunner]) -> None:
    """Load, say hello, and run plans until SIGTERM, which ends this process at once: it has nothing to save,
    and neither loading nor a step looks up.
    """
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    process.row["step_began"] = 0
    config, scheduler = process.config, process.peer("scheduler")
    inbox, outbox = process.inbox(scheduler, *TO_EXECUTOR), process.outbox(scheduler)
    shape = StepShape(config.max_num_seqs, config.max_num_batched_tokens, config.num_speculative_tokens)
    runner = load(step_slots(process.memory(steps_name(scheduler)), shape, slots_for_depth(config.pipeline_depth)))
    hello = runner.hello
    process.live()
    outbox.send(hello)
    process.row["num_blocks"] = hello.num_blocks
    process.row["max_model_len"] = hello.max_model_len
    process.row["vocab_size"] = hello.vocab_size
    tokens = hello.num_blocks * hello.block_size
    process.report(State.READY, f"KV cache of {tokens:,} tokens, requests of up to {hello.max_model_len:,}")
    loop = ExecutorLoop(runner, inbox, outbox, process.row)
    if runner.ends is not None:
        process.watch(runner.ends)
    while not process.stopping:
        process.wait()
        loop.turn()
