"""The executor process: step plans from its scheduler in, sampled tokens out. All logic is in runner.py."""

from __future__ import annotations

import time

from ...common.types import State
from ...ipc.messages import StepPlan
from ...ipc.plan import StepShape, slots_for_depth, step_slots
from ...ipc.segment import steps_name
from ..process import Process, run
from .runner import Runner, load_runner

_PROGRESS_STEP = 0.1
"""Loading is reported each time that so much more of it is done."""


class _Progress:
    """Tells the supervisor how far loading is, not more often than somebody wants to read."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._next = 0.0

    def __call__(self, done: float) -> None:
        if done >= self._next:
            self._process.report(State.STARTING, f"loading weights {100 * done:.0f} %")
            self._next = done + _PROGRESS_STEP


def serve(process: Process) -> None:
    """Load the model, say hello, and run plans until the process is told to stop."""
    config, scheduler = process.config, process.peer("scheduler")
    inbox, outbox = process.inbox(scheduler, StepPlan), process.outbox(scheduler)
    shape = StepShape(config.max_num_seqs, config.max_num_batched_tokens)
    slots = step_slots(process.memory(steps_name(scheduler)), shape, slots_for_depth(config.pipeline_depth))
    runner = load_runner(config, slots, _Progress(process))
    outbox.send(runner.hello)
    _announce(process, runner)
    while not process.stopping:
        process.wait()
        for plan in inbox.drain():
            began = time.monotonic_ns()
            done = runner.run(plan)
            outbox.send(done)
            process.row.add("steps_run")
            process.row.add("step_seconds", time.monotonic_ns() - began)
            process.row.add("row_errors", len(done.errors))


def _announce(process: Process, runner: Runner) -> None:
    hello = runner.hello
    process.row["max_model_len"] = hello.max_model_len
    process.row["vocab_size"] = hello.vocab_size
    tokens = hello.num_blocks * hello.block_size
    process.report(State.READY, f"KV cache of {tokens:,} tokens, requests of up to {hello.max_model_len:,}")


def main() -> None:
    run("executor", serve)


if __name__ == "__main__":
    main()
