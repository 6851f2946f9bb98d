"""The executor's loop, whatever runs the plans: the model (runner.py) or an invention (fake.py). Knows no torch."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from typing import Protocol

from ...common.errors import BadMessage
from ...common.types import State
from ...ipc.messages import Hello, StepDone, StepPlan
from ...ipc.plan import StepShape, StepSlot, slots_for_depth, step_slots
from ...ipc.segment import steps_name
from ..process import Process


class PlanRunner(Protocol):
    """What runs step plans, in the order in which they come."""

    @property
    def hello(self) -> Hello: ...

    def run(self, plan: StepPlan) -> StepDone:
        """Run a step and leave the sampled tokens in its slot. Raises BadMessage, and changes nothing, if it cannot."""
        ...


def serve_plans(process: Process, load: Callable[[tuple[StepSlot, ...]], PlanRunner]) -> None:
    """Load, say hello, and run plans until SIGTERM, which ends this process at once: it has nothing to save,
    and neither loading nor a step looks up.
    """
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    config, scheduler = process.config, process.peer("scheduler")
    inbox, outbox = process.inbox(scheduler, StepPlan), process.outbox(scheduler)
    shape = StepShape(config.max_num_seqs, config.max_num_batched_tokens)
    runner = load(step_slots(process.memory(steps_name(scheduler)), shape, slots_for_depth(config.pipeline_depth)))
    hello = runner.hello
    outbox.send(hello)
    process.row["max_model_len"] = hello.max_model_len
    process.row["vocab_size"] = hello.vocab_size
    tokens = hello.num_blocks * hello.block_size
    process.report(State.READY, f"KV cache of {tokens:,} tokens, requests of up to {hello.max_model_len:,}")
    while not process.stopping:
        process.wait()
        for plan in inbox.drain(1):  # the next plan is there when a step ends: one turn of the loop for each
            began_ns = process.row["step_began"] = time.monotonic_ns()
            try:
                done = runner.run(plan)
            except BadMessage as error:
                inbox.reject(error)
                continue
            finally:
                process.row["step_began"] = 0
            outbox.send(done)
            process.row.add("steps_run")
            process.row.add("step_seconds", time.monotonic_ns() - began_ns)
            process.row.add("row_errors", len(done.errors))
