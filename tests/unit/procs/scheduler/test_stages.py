"""A pipeline of stages: a request is in one open step at a time, and every stage is told of every step."""

from __future__ import annotations

import pytest

from fourstroke.ipc.messages import TO_EXECUTOR
from fourstroke.ipc.wire import memory_wire
from fourstroke.procs.executor.fake import continuation

from .driver import Driver


@pytest.mark.parametrize(
    "budget, prompts, samples", [(1000, [50], [True]), (200, [50, 300], [True, False])], ids=["one", "two"]
)
def test_last_chunks_sample(budget, prompts, samples):
    """50 tokens; 50 and 300 with a budget of 200. (EX-7)"""
    driver = Driver(budget=budget, blocks=400, max_model_len=512, depth=2, stages=2)
    for rid, length in enumerate(prompts):
        driver.submit(rid, [rid + 1] * length)
    assert driver.plan().samples.tolist() == samples


def test_a_row_in_flight_is_not_planned_again():
    """Neither a chunk nor a decode, before the step that has it has settled; others fill the next step. (EX-9)"""
    driver = Driver(budget=8, blocks=100, depth=2, stages=2)
    driver.submit(1, list(range(10, 22)), max_tokens=3)
    first = driver.plan()
    assert driver.rids_of(first) == [1]
    assert driver.plan() is None
    driver.submit(2, [5, 6, 7], max_tokens=3)
    second = driver.plan()
    assert driver.rids_of(second) == [2]
    driver.settle()
    assert driver.rids_of(driver.plan()) == [1]
    driver.run()
    assert driver.outputs == {1: continuation(list(range(10, 22)), 3), 2: continuation([5, 6, 7], 3)}


def test_a_wire_without_messages_gives_nothing():
    """A stage that looks for the next plan and finds none goes on waiting. (EX-9)"""
    _, stage = memory_wire("scheduler0", *TO_EXECUTOR)
    assert list(stage.drain()) == []
