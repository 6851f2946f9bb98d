"""The executor process: loads the model and runs step plans. The loop is in loop.py, the work in runner.py."""

from __future__ import annotations

import time

from ...common.types import State
from ...ipc.plan import StepSlot
from ..process import Process, run
from .device.selection import choose_backend, refuse_for_cpu, torch_build
from .loop import AtOnce, PlanRunner, config_of, serve_plans
from .runner import load_runner

_PROGRESS_EVERY_S = 2.0
"""Loading is reported at its beginning and then so often."""


class _Progress:
    """Tells the supervisor how far loading is, not more often than somebody wants to read."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._next_s = 0.0

    def __call__(self, done: float) -> None:
        now_s = time.monotonic()
        if now_s >= self._next_s:
            self._process.report(State.STARTING, f"loading weights {done:.0%}")
            self._next_s = now_s + _PROGRESS_EVERY_S


def serve(process: Process) -> None:
    """Serve the model that the configuration names."""
    config = config_of(process)
    backend = choose_backend(config, torch_build())

    def load(slots: tuple[StepSlot, ...]) -> PlanRunner:
        if backend == "cpu":
            refuse_for_cpu(config)
            return AtOnce(load_runner(config, slots, _Progress(process)))
        from .device.load import load_device_runner  # here: a CPU server needs no Triton

        return load_device_runner(config, slots, _Progress(process), process.assignment.index)

    serve_plans(process, load)


def main() -> None:
    run("executor", serve)


if __name__ == "__main__":
    main()
