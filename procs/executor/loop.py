"""The executor's loop, whatever runs the plans: the model (runner.py) or an invention (fake.py). Knows no torch."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from typing import Protocol

from ...common.errors import BadMessage
from ...common.types import State, TransferAction, TransferOutcome
from ...ipc.board import Row
from ...ipc.messages import TO_EXECUTOR, Hello, KvTransfer, StepDone, StepPlan, TransferReport
from ...ipc.plan import StepShape, StepSlot, slots_for_depth, step_slots
from ...ipc.segment import steps_name
from ...ipc.wire import Inbox, Outbox
from ..process import Process


class PlanRunner(Protocol):
    """What runs step plans, in the order in which they come."""

    @property
    def hello(self) -> Hello: ...

    def run(self, plan: StepPlan) -> StepDone:
        """Run a step and leave its results in its slot. Raises BadMessage, and changes nothing, if it cannot."""
        ...


class ExecutorLoop:
    """What becomes of each message; the results go out."""

    def __init__(self, runner: PlanRunner, inbox: Inbox, outbox: Outbox, row: Row) -> None:
        self._runner = runner
        self._inbox = inbox
        self._outbox = outbox
        self._row = row

    def turn(self) -> None:
        """Take one message: the next plan is there when a step ends, so there is one turn for each."""
        for message in self._inbox.drain(1):
            if isinstance(message, KvTransfer):
                self._outbox.send(refusal(message))
            else:
                self._run(message)

    def _run(self, plan: StepPlan) -> None:
        row = self._row
        began_ns = row["step_began"] = time.monotonic_ns()
        try:
            done = self._runner.run(plan)
        except BadMessage as error:
            self._inbox.reject(error)
            return
        finally:
            row["step_began"] = 0
        self._outbox.send(done)
        row.add("steps_run")
        row.add("step_seconds", time.monotonic_ns() - began_ns)
        row.add("row_errors", len(done.errors))


def refusal(transfer: KvTransfer) -> TransferReport:
    """The answer of an executor that moves no KV: nothing begins, and nothing is left of what is cancelled."""
    if transfer.action is TransferAction.CANCEL:
        return TransferReport(transfer.rid, transfer.epoch, TransferOutcome.CANCELLED)
    return TransferReport(transfer.rid, transfer.epoch, TransferOutcome.FAILED, detail="this executor moves no KV")


def serve_plans(process: Process, load: Callable[[tuple[StepSlot, ...]], PlanRunner]) -> None:
    """Load, say hello, and run plans until SIGTERM, which ends this process at once: it has nothing to save,
    and neither loading nor a step looks up.
    """
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    config, scheduler = process.config, process.peer("scheduler")
    inbox, outbox = process.inbox(scheduler, *TO_EXECUTOR), process.outbox(scheduler)
    shape = StepShape(config.max_num_seqs, config.max_num_batched_tokens, config.num_speculative_tokens)
    runner = load(step_slots(process.memory(steps_name(scheduler)), shape, slots_for_depth(config.pipeline_depth)))
    hello = runner.hello
    outbox.send(hello)
    process.row["max_model_len"] = hello.max_model_len
    process.row["vocab_size"] = hello.vocab_size
    tokens = hello.num_blocks * hello.block_size
    process.report(State.READY, f"KV cache of {tokens:,} tokens, requests of up to {hello.max_model_len:,}")
    loop = ExecutorLoop(runner, inbox, outbox, process.row)
    while not process.stopping:
        process.wait()
        loop.turn()
