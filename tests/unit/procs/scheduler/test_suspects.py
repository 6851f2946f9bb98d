"""A request that kills its executor ends alone; all others go on, whatever they were computed with."""

from __future__ import annotations

import pytest

from fourstroke.common.types import Finish
from fourstroke.procs.executor.fake import continuation

from .driver import Driver

PROMPTS = {rid: [20 + rid] * (3 + 2 * rid) for rid in range(1, 7)}


def run_with_killers(driver: Driver, killers: set[int]) -> int:
    """Turn until all have ended; an executor dies of every step with one of these. Returns how often that was."""
    deaths = 0
    for _ in range(500):
        step = driver.plan()
        if step is not None and killers & {int(rid) for rid in driver.core.table.rid[step.rows]}:
            deaths += 1
            driver.restart()
        elif driver.pending and (step is None or len(driver.pending) >= driver.depth):
            driver.settle()
        elif step is None and not driver.core.alive:
            return deaths
    raise AssertionError("requests are left")


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("killers", [set(), {3}, {1, 6}, {2, 3, 4}, set(PROMPTS)], ids=str)
def test_who_kills_executors_ends_alone(depth: int, killers: set[int]) -> None:
    """Each killer after a third death, with a cause that says so; nobody else loses a token."""
    driver = Driver(depth=depth)
    for rid, prompt in PROMPTS.items():
        driver.submit(rid, prompt, 8)
    deaths = run_with_killers(driver, killers)
    for rid, prompt in PROMPTS.items():
        if rid in killers:
            assert driver.ended[rid].finish is Finish.ERROR
            assert "died 3 times" in driver.ended[rid].detail
        else:
            assert driver.ended[rid].finish is Finish.LENGTH
            assert driver.outputs[rid] == continuation(prompt, 8)
    assert deaths <= 3 * len(killers)
    driver.core.check()


def test_a_result_clears_all_who_were_in_it() -> None:
    """An executor that dies often, but gets something done each time, ends nobody."""
    driver = Driver(depth=1, rows=8, blocks=200, budget=256)
    for rid, prompt in PROMPTS.items():
        driver.submit(rid, prompt, 8)
    for _ in range(200):
        if driver.plan() is None:
            break
        driver.restart()
        if driver.plan() is not None:
            driver.settle()
    assert {rid: driver.outputs[rid] for rid in PROMPTS} == {rid: continuation(PROMPTS[rid], 8) for rid in PROMPTS}
    assert {end.finish for end in driver.ended.values()} == {Finish.LENGTH}


def test_who_comes_meanwhile_waits() -> None:
    """While a suspect is computed alone, nobody is admitted beside it; then everybody is."""
    driver = Driver(depth=2)
    driver.submit(1, PROMPTS[1], 8)
    for _ in range(2):
        driver.plan()
        driver.restart()
    driver.submit(2, PROMPTS[2], 8)
    step = driver.plan()
    assert driver.core.table.rid[step.rows].tolist() == [1]
    step = driver.plan()
    assert driver.core.table.rid[step.rows].tolist() == [1]
    driver.settle()
    step = driver.plan()
    assert sorted(driver.core.table.rid[step.rows].tolist()) == [1, 2]


def test_a_reset_waits_for_nobody_who_made_way() -> None:
    """Rows that make way for a suspect are free: a reset that waited for them is done in the same plan."""
    driver = Driver(depth=1, rows=8, blocks=200, budget=256)
    for rid, prompt in PROMPTS.items():
        driver.submit(rid, prompt, 8)
    for _ in range(2):
        driver.plan()
        driver.restart()
    driver.plan()
    driver.reset_cache(99, force=True)
    while driver.core.alive:
        assert driver.plan() is not None or driver.pending, "something is left and nothing happens"
        if driver.pending:
            driver.settle()
    assert {rid: driver.outputs[rid] for rid in PROMPTS} == {rid: continuation(PROMPTS[rid], 8) for rid in PROMPTS}
    assert driver.ended[99].finish is Finish.STOP
