"""What a rank tells the others before prefills are planned, as the scheduler's core sees it.

A name in brackets is the row of the scheduling rules that the test shows; the set-up is the driver's:
block 4, 10 blocks, 4 rows, budget 64, model length 64, depth 1, unless a test says otherwise.
"""

import pytest

from .driver import Driver, Switch
from .remote import Partly, consumer, elsewhere, prompt


@pytest.mark.parametrize(
    ("budget", "remote", "waiting", "pending"),
    [(1000, [], [8, 10], 18), (1000, [10], [8], 8), (1000, [10, 200], [8], 8), (16, [], [10] * 5, 16)],
)
def test_pending_tokens_are_those_that_wait_for_a_prefill(budget, remote, waiting, pending):
    """What is on its way from elsewhere is none; a step's budget is the most. (TR-8)"""
    gate = Switch()
    driver = consumer(gate=gate, budget=budget, blocks=100, max_model_len=256)
    for rid, tokens in enumerate(remote):
        driver.submit(rid, prompt(rid, tokens), remote=elsewhere())
    driver.plan()
    assert driver.core.counts().parked == len(remote)
    for rid, tokens in enumerate(waiting, 10):
        driver.submit(rid, prompt(rid, tokens))
    driver.plan()
    assert gate.views[-1].pending_tokens == pending


@pytest.mark.parametrize(("budget", "prompts", "pending"), [(1000, [20, 30], 17), (16, [20, 30], 16), (16, [], 0)])
def test_pending_tokens_of_running_prefills_are_the_rest(budget, prompts, pending):
    """At 8 of 20 and 25 of 30 tokens. (TR-9)"""
    gate = Switch()
    driver = consumer(gate=gate, budget=budget, blocks=100, connector=Partly({20: 8, 30: 25}))
    for rid, tokens in enumerate(prompts):
        driver.submit(rid, prompt(rid, tokens), remote=elsewhere())
    driver.plan()
    for rid in range(len(prompts)):
        driver.arrive(rid)
    driver.plan()
    assert gate.views[-1].pending_tokens == pending
    assert gate.views[-1].prefillable == bool(prompts)


@pytest.mark.parametrize(
    ("arrivals", "parked_s", "age_ms"), [([997.5, 999.0], None, 2500), ([999.0], 990.0, 1000), ([], None, 0)]
)
def test_the_oldest_age_is_that_of_who_waits(arrivals, parked_s, age_ms):
    """At 1000 s. What is parked does not wait for a prefill, and who goes first need not be the oldest. (TR-10)"""
    gate = Switch()
    driver = consumer(gate=gate)
    if parked_s is not None:
        driver.now = parked_s
        driver.submit(9, prompt(9, 4), remote=elsewhere())
        driver.plan()
    driver.submit(8, prompt(8, 4))
    driver.abort(8)
    for rid, driver.now in enumerate(arrivals):
        driver.submit(rid, prompt(rid, 4), priority=1 - rid)
    driver.now = 1000.0
    driver.plan()
    assert gate.views[-1].oldest_ms == age_ms


@pytest.mark.parametrize("running", [False, True])
def test_a_prompt_above_the_budget_is_prefillable(running):
    """By its chunk, fresh and in its middle. (DL-7)"""
    gate = Switch()
    driver = Driver(gate=gate, budget=8)
    driver.submit(1, prompt(1, 20))
    if running:
        driver.turn()
    driver.plan()
    view = gate.views[-1]
    assert (view.prefillable, view.ready, view.pending_tokens, view.partial) == (True, True, 8, running)


def test_the_gate_is_asked_once_in_a_plan():
    """Also in the first one, and with empty queues."""
    gate = Switch()
    driver = Driver(gate=gate)
    assert driver.plan() is None
    assert len(gate.views) == 1
    driver.submit(1, prompt(1, 4))
    driver.plan()
    assert len(gate.views) == 2
    assert not gate.views[0].prefillable and gate.views[1].prefillable


def test_usage_and_decodes():
    """2 of 10 blocks are in use, and one of two requests is past its prefill."""
    gate = Switch()
    driver = Driver(gate=gate, budget=8)
    driver.submit(1, prompt(1, 4))
    driver.submit(2, prompt(2, 12))
    driver.turn()
    gate.open = False
    driver.plan()
    view = gate.views[-1]
    assert (round(view.usage, 6), view.running_decodes, view.partial) == (0.2, 1, True)
