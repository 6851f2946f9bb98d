"""The doctor's tests of a device, with the kernels in Triton's interpreter in place of a card."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
import torch

from fourstroke.common.finding import Level
from fourstroke.procs.executor.attention.backend import Attention, Spans
from fourstroke.procs.executor.doctor import problems, selftest
from fourstroke.procs.executor.doctor.device_tests import all_reduce, device_tests, triton_attention
from fourstroke.procs.executor.doctor.problems import attention
from fourstroke.procs.executor.doctor.selftest import judge
from fourstroke.procs.executor.kv_cache import KvCache

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Problems for an interpreter."""
    monkeypatch.setattr(selftest, "_REPEATS", 1)
    monkeypatch.setattr(problems, "_INPUTS", 96)
    monkeypatch.setattr(problems, "_OUTPUTS", 80)
    monkeypatch.setattr(problems, "_CACHED_AND_NEW", ((0, 1), (16, 1), (40, 1), (0, 12), (20, 9)))


def test_kernels_that_are_right_are_green() -> None:
    """Every test of a device passes with the kernels as they are; each has a name of its own."""
    findings = [judge(test.run()) for test in device_tests("device 0", CPU)]
    assert [finding for finding in findings if finding.level != Level.GREEN] == []
    assert len({finding.subject for finding in findings}) == len(findings) == 7


@pytest.mark.parametrize("row", [1, 4])
def test_one_wrong_row_is_red(row: int) -> None:
    """The blocks of a decode, or of a chunk, are another row's."""

    def backend(spans: Spans, cache: KvCache) -> Attention:
        tables = spans.tables.copy()
        tables[row] = tables[row - 1]
        return triton_attention(dataclasses.replace(spans, tables=tables), cache)

    assert judge(attention("it", torch.float32, CPU, backend).run()).level == Level.RED


def _sum_into(parts: list[torch.Tensor]) -> None:
    for part, total in zip(parts, [sum(parts)] * len(parts), strict=True):
        part.copy_(total)


@pytest.mark.parametrize("reduce, level", [(_sum_into, Level.GREEN), (lambda parts: None, Level.RED)])
def test_a_sum_over_cards(monkeypatch: pytest.MonkeyPatch, reduce: Callable[..., None], level: Level) -> None:
    """Green if every card has the sum of all, red if each has kept its own."""
    monkeypatch.setattr(torch.cuda.nccl, "all_reduce", reduce)
    assert judge(all_reduce([CPU, CPU, CPU]).run()).level == level
