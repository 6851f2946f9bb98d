"""The gate before prefills: the tables of both algorithms, and what holds for them whatever the ranks say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fourstroke.common.config import ALIGNMENTS, Config
from fourstroke.common.errors import CollectiveError
from fourstroke.ipc.collective import Alone, Collective, LocalGroup
from fourstroke.procs.scheduler.align.coalesce import Coalesce, CoalesceSettings
from fourstroke.procs.scheduler.align.delay import Delay, DelaySettings
from fourstroke.procs.scheduler.align.gate import Algorithm, Aligned, Open, gate_for
from fourstroke.procs.scheduler.align.readiness import Readiness, Rule

T = TypeVar("T")

BUDGET = 16384
BUSY = Readiness(True, True, 1000, 64, 0.5, False, 0.0)
IDLE = Readiness(False, False, 0, 0, 0.0, False, 0.0)
UNREADY = replace(BUSY, ready=False)


class Siblings:
    """A group whose other ranks always say the same numbers."""

    generation = 0

    def __init__(self, *others: Sequence[float]) -> None:
        self.others = others
        self.size = 1 + len(others)
        self.calls = 0

    def sum(self, values: Sequence[float]) -> list[float]:
        return self._over(sum, values)

    def max(self, values: Sequence[float]) -> list[float]:
        return self._over(max, values)

    def _over(self, combine: Callable[..., float], values: Sequence[float]) -> list[float]:
        self.calls += 1
        return [combine(column) for column in zip(values, *self.others, strict=True)]


class Broken:
    """A group that does not agree."""

    size = 2
    generation = 0

    def sum(self, values: Sequence[float]) -> list[float]:
        raise CollectiveError("rank 1 did not answer")

    def max(self, values: Sequence[float]) -> list[float]:
        raise CollectiveError("rank 1 did not answer")


def coalesce(collective: Collective | None = None, **changes: float) -> Aligned:
    """A coalescing gate after its first call."""
    gate = Aligned(collective or Alone(), Coalesce(CoalesceSettings(**changes), BUDGET))
    assert gate.allow(BUSY, 0.0)
    assert gate.last is Rule.FIRST
    return gate


def delay(collective: Collective, **changes: float) -> Aligned:
    return Aligned(collective, Delay(DelaySettings(**changes)))


def rules(gate: Aligned, *views: Readiness, now: float = 0.0) -> list[Rule]:
    """The rules that answer these calls."""
    answers = []
    for view in views:
        assert gate.allow(view, now) == gate.last.allows
        answers.append(gate.last)
    return answers


def pending(*tokens: int, **changes: object) -> list[Readiness]:
    return [replace(BUSY, pending_tokens=count, **changes) for count in tokens]


def together(calls: Sequence[Callable[[], T]]) -> list[T]:
    """Make all calls at the same time."""
    with ThreadPoolExecutor(len(calls)) as pool:
        return [future.result() for future in [pool.submit(call) for call in calls]]


def test_coalesce_fills_a_step() -> None:
    """Prefills are held until they reach 0.7 of the budget. (CO-1)"""
    gate = coalesce()
    assert rules(gate, *pending(1000, 11469, 12000)) == [Rule.FILLING, Rule.FILL, Rule.FILL]
    assert rules(gate, *pending(11468)) == [Rule.FILLING]
    assert gate.fired == {Rule.FILLING: 2, Rule.FILL: 2}


def test_coalesce_has_no_reason_to_hold() -> None:
    """Without decodes, and with too many or too few blocks in use, nothing is held. (CO-2)"""
    assert rules(coalesce(), replace(BUSY, running_decodes=0)) == [Rule.NODECODE]
    assert rules(coalesce(), replace(BUSY, usage=0.95)) == [Rule.KV]
    assert rules(coalesce(), replace(BUSY, usage=0.9)) == [Rule.KV]
    assert rules(coalesce(kv_low=0.2), replace(BUSY, usage=0.1)) == [Rule.KV]
    assert rules(coalesce(kv_low=0.2), replace(BUSY, usage=0.2)) == [Rule.FILLING]
    assert rules(coalesce(), replace(BUSY, usage=0.001)) == [Rule.FILLING]


def test_coalesce_bounds_the_ticks() -> None:
    """What grows without filling a step is held ttft_max_ticks, then allowed. (CO-3)"""
    gate = coalesce(ttft_max_ticks=3, stall_ticks=1000)
    assert rules(gate, *pending(1000, 2000, 3000, 4000)) == [Rule.FILLING] * 3 + [Rule.TTFT]
    assert rules(gate, *pending(1000)) == [Rule.FILLING]


def test_coalesce_bounds_the_age() -> None:
    """One request that has waited its longest opens the gate of all ranks, if its rank can prefill. (CO-4)"""
    assert rules(coalesce(), replace(BUSY, oldest_ms=1e9)) == [Rule.FILLING]
    gate = coalesce(max_queue_ms=5000)
    assert rules(gate, replace(BUSY, oldest_ms=1000), replace(BUSY, oldest_ms=6000)) == [Rule.FILLING, Rule.AGE]
    gate = coalesce(Siblings([0] * 7), max_queue_ms=5000)
    assert rules(gate, replace(BUSY, oldest_ms=6000)) == [Rule.AGE]
    gate = coalesce(max_queue_ms=5000)
    assert rules(gate, replace(BUSY, prefillable=False, oldest_ms=9000)) == [Rule.VACUOUS]


def test_coalesce_bounds_the_ticks_of_a_partial_prefill() -> None:
    """A prefill in its middle holds blocks, so it is held for fewer ticks. (CO-5)"""
    views = pending(500, 500, 500, partial=True)
    assert rules(coalesce(partial_max_ticks=2), *views) == [Rule.FILLING, Rule.FILLING, Rule.PARTIAL]
    assert rules(coalesce(partial_max_ticks=3), *views) == [Rule.FILLING] * 3
    gate = coalesce(partial_max_ticks=3, stall_ticks=1000)
    without = replace(views[0], partial=False)
    assert rules(gate, views[0], without, without, views[0]) == [Rule.FILLING] * 3 + [Rule.PARTIAL]


def test_coalesce_has_nothing_to_hold() -> None:
    """Where no rank has prefills the gate is open, and the count says why. (CO-6)"""
    gate = coalesce(Siblings([0, 0, 9, 0, 0, 0, 0]))
    assert rules(gate, replace(IDLE, running_decodes=64, usage=0.95)) == [Rule.VACUOUS]
    assert gate.fired == {Rule.VACUOUS: 1}


def test_coalesce_waits_for_all_ranks() -> None:
    """A full step on one rank is held until the other has prefills too, or the bound is reached. (CO-7)"""
    full = replace(BUSY, pending_tokens=BUDGET)
    without, with_prefills = [0, 0, 64, 0, 0, 0, 0], [1, BUDGET, 64, 0, 0, 0, 0]
    assert rules(coalesce(Siblings(without)), full) == [Rule.MIXED]
    assert rules(coalesce(Siblings(with_prefills)), full) == [Rule.FILL]
    gate = coalesce(Siblings(without), ttft_max_ticks=2)
    assert rules(gate, full, full, full) == [Rule.MIXED, Rule.MIXED, Rule.TTFT]


def test_coalesce_clamps() -> None:
    """Settings that make no sense are moved to the nearest that do. (CO-8)"""
    assert CoalesceSettings(target_fill=1.5).target_fill == 1.0
    assert CoalesceSettings(target_fill=0).target_fill == 0.05
    odd = CoalesceSettings(ttft_max_ticks=0, partial_max_ticks=-3, stall_ticks=0)
    assert (odd.ttft_max_ticks, odd.partial_max_ticks, odd.stall_ticks) == (1, 1, 1)


def test_coalesce_counts_one_budget_per_rank() -> None:
    """More than a step's worth on one rank does not fill the step of another."""
    gate = coalesce(Siblings([1, 100, 64, 0, 0, 0, 0]))
    assert rules(gate, replace(BUSY, pending_tokens=10 * BUDGET)) == [Rule.FILLING]


def test_coalesce_gives_up_when_nothing_comes() -> None:
    """After stall_ticks calls without growth there is nothing to wait for; growth begins the count again."""
    gate = coalesce(stall_ticks=3)
    assert rules(gate, *pending(500, 500, 400, 400)) == [Rule.FILLING] * 3 + [Rule.STALL]
    assert rules(gate, *pending(500, 500, 500, 600, 600, 600, 600)) == [Rule.FILLING] * 6 + [Rule.STALL]


def test_coalesce_stalls_only_where_it_might_fill() -> None:
    """Ticks that end before the last line of the table neither count as stalled nor as growth."""
    siblings = Siblings([1, 0, 64, 0, 0, 0, 0])
    gate = coalesce(siblings, stall_ticks=2)
    assert rules(gate, *pending(500, 500)) == [Rule.FILLING] * 2
    siblings.others = ([0, 0, 64, 0, 0, 0, 0],)
    assert rules(gate, *pending(900, 900)) == [Rule.MIXED] * 2
    siblings.others = ([1, 0, 64, 0, 0, 0, 0],)
    assert rules(gate, *pending(500)) == [Rule.STALL]


def test_delay_allows_the_first_call() -> None:
    """Ranks that have just started are not delayed, mixed as they are. (DL-1)"""
    assert rules(delay(Siblings([0, 0, 0, 1])), BUSY, BUSY) == [Rule.FIRST, Rule.MIXED]


def test_delay_has_nothing_to_wait_for() -> None:
    """Without prefills, and with all ranks ready, the gate is open and earlier refusals are forgotten. (DL-2)"""
    for view, others, rule in (
        (IDLE, [0, 0, 0, 1], Rule.VACUOUS),
        (BUSY, [1, 0, 1, 0], Rule.READY),
    ):
        siblings = Siblings([0, 0, 0, 1])
        gate = delay(siblings, max_delay_passes=2)
        assert rules(gate, *[BUSY] * 3) == [Rule.FIRST, Rule.MIXED, Rule.MIXED]
        siblings.others = (others,)
        assert rules(gate, view) == [rule]
        siblings.others = ([0, 0, 0, 1],)
        assert rules(gate, *[BUSY] * 3) == [Rule.MIXED, Rule.MIXED, Rule.OVERDUE]


def test_delay_is_bounded_in_passes() -> None:
    """Mixed ranks are refused 30 times, allowed once, and refused again. (DL-3)"""
    gate = delay(Siblings([0, 0, 0, 1]))
    assert rules(gate, BUSY) == [Rule.FIRST]
    cycle = [Rule.MIXED] * 30 + [Rule.OVERDUE]
    assert rules(gate, *[BUSY] * 62) == 2 * cycle
    assert gate.fired == {Rule.MIXED: 60, Rule.OVERDUE: 2}


def test_delay_is_bounded_in_time() -> None:
    """A rank whose clock has run for max_delay_ms since the first refusal opens the gate of all."""
    gate = delay(Siblings([0, 0, 0, 1]))
    assert rules(gate, BUSY, now=0.0) == [Rule.FIRST]
    assert rules(gate, BUSY, now=1.0) == [Rule.MIXED]
    assert rules(gate, BUSY, now=5.5) == [Rule.MIXED]
    assert rules(gate, BUSY, BUSY, now=6.0) == [Rule.FORCE, Rule.MIXED]


def test_delay_is_forced() -> None:
    """One rank with force opens the gate of all: below the watermark, if it can prefill. (DL-4)"""
    siblings = Siblings([1, 1, 0, 1])
    assert rules(delay(siblings), BUSY, BUSY) == [Rule.FORCE, Rule.FORCE]
    gate = delay(Siblings([0, 0, 0, 1]), low_watermark=0.3)
    low = replace(BUSY, usage=0.2)
    assert rules(gate, BUSY, low, BUSY) == [Rule.FIRST, Rule.FORCE, Rule.MIXED]
    assert rules(gate, replace(low, prefillable=False, ready=False)) == [Rule.VACUOUS]


def test_delay_of_micro_batches() -> None:
    """A rank that can prefill but not in two micro-batches is not ready. (DL-5)"""
    gate = delay(Siblings([1, 0, 1, 0]))
    assert rules(gate, BUSY, UNREADY, BUSY) == [Rule.FIRST, Rule.MIXED, Rule.READY]
    assert rules(delay(Alone()), UNREADY, UNREADY) == [Rule.FIRST, Rule.MIXED]


@pytest.mark.parametrize("make", [coalesce, delay])
def test_empty_queues_take_part(make: Callable[[Siblings], Aligned]) -> None:
    """One collective in each call, whatever the queues hold. (DL-6)"""
    siblings = Siblings([0] * (7 if make is coalesce else 4))
    gate = make(siblings)
    before = siblings.calls
    rules(gate, IDLE, BUSY, IDLE)
    assert siblings.calls == before + 3


@pytest.mark.parametrize("algorithm", [Coalesce(CoalesceSettings(), BUDGET), Delay(DelaySettings())])
def test_group_that_does_not_agree(algorithm: Algorithm) -> None:
    """Prefills are allowed, in every such tick, and each error is counted. (DL-8)"""
    gate = Aligned(Broken(), algorithm)
    assert rules(gate, BUSY, IDLE, BUSY) == [Rule.ERROR] * 3
    assert (gate.errors, gate.fired) == (3, {Rule.ERROR: 3})


@pytest.mark.parametrize("make", [coalesce, delay])
def test_group_that_has_changed(make: Callable[[Siblings], Aligned]) -> None:
    """Ranks remember different things then, so all begin again with a first call."""
    siblings = Siblings([0] * (7 if make is coalesce else 4))
    gate = make(siblings)
    rules(gate, UNREADY)
    assert rules(gate, UNREADY) == [Rule.MIXED]
    siblings.generation = 1
    assert rules(gate, UNREADY, UNREADY) == [Rule.FIRST, Rule.MIXED]


@pytest.mark.parametrize("alignment", ALIGNMENTS)
def test_gate_of_a_configuration(alignment: str) -> None:
    """Each kind of alignment has its gate, and the one that is off never asks anybody."""
    config = Config(model="m", served_model_names=("m",), alignment=alignment)
    gate = gate_for(config, Broken())
    assert gate.allow(UNREADY, 0.0)
    assert gate.last is (Rule.OPEN if alignment == "off" else Rule.ERROR)
    assert isinstance(gate, Open) == (alignment == "off")


views = st.builds(
    Readiness,
    st.booleans(),
    st.booleans(),
    st.integers(0, BUDGET),
    st.integers(0, 2),
    st.floats(0, 1),
    st.booleans(),
    st.floats(0, 1e4),
)
algorithms = st.sampled_from(
    [
        lambda: Delay(DelaySettings(max_delay_passes=3, max_delay_ms=500, low_watermark=0.05)),
        lambda: Coalesce(
            CoalesceSettings(kv_high=0.98, max_queue_ms=9e3, ttft_max_ticks=4, partial_max_ticks=2), BUDGET
        ),
    ]
)


@settings(max_examples=60, deadline=None)
@given(st.data(), algorithms, st.integers(2, 4))
def test_all_ranks_get_the_same_answer(data: st.DataObject, algorithm: Callable[[], Algorithm], size: int) -> None:
    """In each tick every rank gets the same rule, whatever they say and whatever their clocks show."""
    gates = [Aligned(rank, algorithm()) for rank in LocalGroup(size).ranks]
    offsets = data.draw(st.lists(st.floats(0, 1e3), min_size=size, max_size=size))
    ticks = data.draw(st.lists(st.lists(views, min_size=size, max_size=size), min_size=1, max_size=12))
    for number, tick in enumerate(ticks):
        clocks = [offset + 0.1 * number for offset in offsets]
        together([partial(gate.allow, *call) for gate, *call in zip(gates, tick, clocks, strict=True)])
        assert len({gate.last for gate in gates}) == 1
    assert len({frozenset(gate.fired.items()) for gate in gates}) == 1


@given(st.lists(st.lists(st.sampled_from([0, 1]), min_size=4, max_size=4), max_size=60), st.integers(1, 6))
def test_delay_never_refuses_for_long(ticks: list[list[float]], passes: int) -> None:
    """Whatever the ranks say, at most max_delay_passes refusals follow one another."""
    algorithm = Delay(DelaySettings(max_delay_passes=passes))
    assert longest_hold(algorithm, ticks, 2) <= passes


totals = st.tuples(
    st.integers(0, 2),
    st.integers(0, 2 * BUDGET),
    st.integers(0, 3),
    st.just(0),
    st.just(0),
    st.integers(0, 1),
    st.just(0),
)


@given(st.lists(totals, max_size=80), st.integers(1, 6), st.integers(1, 6))
def test_coalesce_never_holds_for_long(ticks: list[tuple[int, ...]], ttft: int, partial: int) -> None:
    """Whatever the ranks say, the ticks held are bounded, and more so while a prefill is in its middle."""
    bounds = CoalesceSettings(ttft_max_ticks=ttft, partial_max_ticks=partial)
    assert longest_hold(Coalesce(bounds, BUDGET), ticks, 2) <= ttft
    in_their_middle = [(*tick[:5], 1, 0) for tick in ticks]
    assert longest_hold(Coalesce(bounds, BUDGET), in_their_middle, 2) <= min(ttft, partial)


@given(st.integers(1, 11000), st.integers(1, 9))
def test_coalesce_never_holds_what_does_not_grow(tokens: int, stall: int) -> None:
    """A queue that stands still is held for stall_ticks."""
    algorithm = Coalesce(CoalesceSettings(stall_ticks=stall), BUDGET)
    assert longest_hold(algorithm, [(1, tokens, 1, 0, 0, 0, 0)] * 30, 1) == stall


def longest_hold(algorithm: Algorithm, ticks: Sequence[Sequence[float]], ranks: int) -> int:
    """The most ticks in a row that did not allow prefills."""
    longest = run = 0
    for tick in ticks:
        run = 0 if algorithm.decide(tick, ranks, 0.0).allows else run + 1
        longest = max(longest, run)
    return longest
