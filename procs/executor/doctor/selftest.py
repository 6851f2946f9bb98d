"""A self-test: computes what is known in float32 anyway, and judges the difference.

Times are told, not judged: they depend on who else uses the machine. What is computed, problems.py knows.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch

from ....common.errors import FourstrokeError
from ....common.finding import Finding, green, red

Computation = Callable[[], torch.Tensor]

TOLERANCE = {
    torch.float32: 1e-4,
    torch.float16: 4e-3,
    torch.bfloat16: 2e-2,
    torch.float8_e4m3fn: 6e-2,
    torch.float8_e4m3fnuz: 6e-2,
}
"""The largest error, as a part of the largest number in the right result.

Half a unit in the last place of bfloat16 is up to 0.4 %, and attention rounds twice more inside; two layers of a model
in it are off by 1.3 %. A number in e4m3 is off by up to 6 %, a sum of many products by 3.5 % of the largest.
"""

_REPEATS = 3


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a test came to: the largest error as a part of the largest right number, and the seconds of the fastest run.

    `fault` is what was raised instead, if that is what happened.
    """

    name: str
    dtype: torch.dtype
    error: float = math.nan
    seconds: float = math.nan
    fault: str = ""


@dataclass(frozen=True, slots=True)
class SelfTest:
    """A computation in a dtype on a device, and its result in float32 on the CPU. Nothing is computed before `run`."""

    name: str
    dtype: torch.dtype
    device: torch.device
    make: Callable[[], Computation]
    right: Callable[[], torch.Tensor]

    def run(self) -> Outcome:
        """Compute it and compare. The first computation, which may compile something, is not timed."""
        try:
            with torch.inference_mode(), _current(self.device):
                compute = self.make()
                error = largest_error(compute().float().cpu(), self.right())
                return Outcome(self.name, self.dtype, error, min(_seconds(compute) for _ in range(_REPEATS)))
        # RuntimeError is what torch raises if a library, a kernel or a device fails.
        except (RuntimeError, FourstrokeError) as error:
            return Outcome(self.name, self.dtype, fault=str(error).strip().partition("\n")[0] or repr(error))


def _current(device: torch.device) -> AbstractContextManager[object]:
    """Triton's kernels go to the current device, wherever their tensors are."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def _seconds(compute: Computation) -> float:
    start = time.perf_counter()
    result = compute()
    if result.is_cuda:
        torch.cuda.synchronize(result.device)
    return time.perf_counter() - start


def largest_error(result: torch.Tensor, right: torch.Tensor) -> float:
    """As a part of the largest right number: NaN if the result has one, infinite if it has another shape."""
    if result.shape != right.shape:
        return math.inf
    return float((result - right).abs().max() / right.abs().max())


def judge(outcome: Outcome) -> Finding:
    """Whether a result is as close to the right one as its type allows."""
    advice = "do not serve with it: install another torch, or the driver that fits this one, and test again"
    if outcome.fault:
        return red(outcome.name, f"failed: {outcome.fault:.300}", advice)
    allowed = TOLERANCE[outcome.dtype]
    found = f"off by {outcome.error:.1e} of the largest number, {allowed:g} is allowed; {1e3 * outcome.seconds:.3g} ms"
    if not outcome.error <= allowed:  # NaN is no small error
        return red(outcome.name, found, advice)
    return green(outcome.name, found)
