"""The self-tests find what is wrong, and pass what is merely rounded."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import pytest
import torch

from fourstroke.common.errors import ResourceError
from fourstroke.common.finding import Level
from fourstroke.procs.executor.attention.backend import Attention, Spans
from fourstroke.procs.executor.attention.cpu import CpuAttention
from fourstroke.procs.executor.attention.reference import ReferenceAttention
from fourstroke.procs.executor.doctor.problems import attention, gemm
from fourstroke.procs.executor.doctor.selftest import TOLERANCE, Outcome, SelfTest, judge, largest_error
from fourstroke.procs.executor.kv_cache import KvCache, LayerCache
from fourstroke.procs.executor.layers.linear import Linear
from fourstroke.procs.executor.ops import TorchOps

CPU = torch.device("cpu")
DTYPES = [torch.float32, torch.bfloat16, torch.float16]


def level(test: SelfTest) -> Level:
    return judge(test.run()).level


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_rounded_passes(dtype: torch.dtype) -> None:
    """The executor's own layers and attention, and the textbook's, are as close as their type allows."""
    assert level(gemm("the CPU", dtype, CPU, TorchOps(dtype).make_linear)) == Level.GREEN
    assert level(attention("the CPU", dtype, CPU, CpuAttention)) == Level.GREEN
    assert level(attention("the CPU", dtype, CPU, ReferenceAttention)) == Level.GREEN


class BentOps(TorchOps):
    """Projections that come out bent."""

    def __init__(self, dtype: torch.dtype, bend: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__(dtype)
        self._bend = bend

    def make_linear(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> Linear:
        project = super().make_linear(weight, bias)
        return lambda hidden: self._bend(project(hidden))


def _one_nan(result: torch.Tensor) -> torch.Tensor:
    result[3, 5] = math.nan
    return result


def _fails(result: torch.Tensor) -> torch.Tensor:
    raise RuntimeError("HIP error: invalid device function\nand where")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "bend",
    [lambda result: 1.05 * result, lambda result: result.roll(1, 0), lambda result: result[:-1], _one_nan, _fails],
    ids=["scaled", "rows moved", "too short", "NaN", "raises"],
)
def test_a_wrong_gemm_is_red(dtype: torch.dtype, bend: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Whatever is wrong with a projection, in one number or in all."""
    assert level(gemm("the CPU", dtype, CPU, BentOps(dtype, bend).make_linear)) == Level.RED


def _longer(spans: Spans) -> Spans:
    return dataclasses.replace(spans, length=spans.length + (spans.length < 300))


def _other_blocks(spans: Spans) -> Spans:
    return dataclasses.replace(spans, tables=spans.tables[::-1].copy())


@pytest.mark.parametrize("bend", [_longer, _other_blocks])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_wrong_attention_is_red(dtype: torch.dtype, bend: Callable[[Spans], Spans]) -> None:
    """One that sees a token too many, or the blocks of another row."""

    def backend(spans: Spans, cache: KvCache) -> Attention:
        return ReferenceAttention(bend(spans), cache)

    assert level(attention("the CPU", dtype, CPU, backend)) == Level.RED


def test_a_wrong_head_is_red() -> None:
    """Query heads that look at another key head."""

    class Swapped(ReferenceAttention):
        def attend(self, queries: torch.Tensor, cache: LayerCache) -> torch.Tensor:
            return super().attend(queries, dataclasses.replace(cache, keys=cache.keys.flip(2)))

    assert level(attention("the CPU", torch.float32, CPU, Swapped)) == Level.RED


@pytest.mark.parametrize("dtype, allowed", TOLERANCE.items())
def test_the_tolerance_is_the_limit(dtype: torch.dtype, allowed: float) -> None:
    """Errors up to it are green, above it red, and so are NaN and infinity; the slowest run is no flaw."""
    assert judge(Outcome("it", dtype, allowed, seconds=1e6)).level == Level.GREEN
    for error in (allowed * 1.001, math.inf, math.nan):
        assert judge(Outcome("it", dtype, error, seconds=0.0)).level == Level.RED


def test_a_fault_is_told_in_its_own_words() -> None:
    """Its first line, which has the cause."""
    finding = judge(gemm("the CPU", torch.float32, CPU, BentOps(torch.float32, _fails).make_linear).run())
    assert finding.found == "failed: HIP error: invalid device function"


def test_largest_error() -> None:
    """A part of the largest number, not of each: numbers near zero are as exact as the others."""
    right = torch.tensor([4.0, 0.001])
    assert largest_error(torch.tensor([4.0, 0.041]), right) == pytest.approx(0.01)
    assert largest_error(torch.tensor([4.0]), right) == math.inf
    assert math.isnan(largest_error(torch.tensor([4.0, math.nan]), right))


@pytest.mark.parametrize("error", [RuntimeError(), ResourceError("2 threads could not be started")])
def test_our_own_errors_are_faults_too(error: Exception) -> None:
    """What the executor raises on purpose, and what says nothing, is a red line and not the end of all tests."""

    def fails(weight: torch.Tensor) -> Linear:
        raise error

    finding = judge(gemm("the CPU", torch.float32, CPU, fails).run())
    assert finding.level == Level.RED
    assert finding.found == f"failed: {str(error) or 'RuntimeError()'}"
