"""Cases that test_model.py found, each in its smallest form."""

import pytest

from fourstroke.common.types import Finish, TransferAction
from fourstroke.procs.executor.fake import continuation

from .driver import Driver
from .remote import FOR_OTHERS, consumer, elsewhere, producer


def test_the_last_choice_that_cannot_resume_frees_what_was_held_for_it():
    """A choice without the state behind the held blocks computes all of its prompt; its step has room for others."""
    driver = Driver(rows=1, state_slots=1)
    driver.submit((1, 2), range(20, 28), max_tokens=1)
    driver.run()
    assert driver.outputs[1] == driver.outputs[2]


def test_a_preempted_choice_without_a_prefix_cache_has_no_digests_behind_its_prompt():
    """It waits for nobody's blocks there, and is computed again."""
    driver = Driver(rows=3, block_size=1, blocks=40)
    driver.submit((1, 2, 3), [20, 21, 22], max_tokens=8)
    for _ in range(4):
        driver.turn()
    driver.core.preempt(3)
    driver.abort(1)
    driver.run()
    assert driver.outputs[2] == driver.outputs[3]


def test_who_waits_for_the_delay_goes_on_in_the_plan_that_ends_the_last_running_request():
    """When the pool is full of one request, it ends, nothing runs any more, and a fresh one waits no longer."""
    driver = Driver(blocks=2, delay_factor=1.0, depth=2)
    driver.submit(1, [20, 21, 22, 23])
    driver.turn()
    driver.submit(2, [30, 31, 32, 33], max_tokens=1)
    driver.run()
    assert driver.ended[1].detail == "kv_capacity" and len(driver.outputs[2]) == 1


def test_a_reset_is_done_in_the_plan_that_ends_the_last_running_request():
    """When the pool is full of one request, it ends, the cache is forgotten, and the next is admitted."""
    driver = Driver(blocks=2)
    driver.submit(1, [20, 21, 22, 23])
    driver.turn()
    driver.submit(2, [30, 31, 32, 33], max_tokens=1)
    driver.reset_cache(9, force=True)
    driver.run()
    assert driver.ended[9].finish is Finish.STOP and len(driver.outputs[2]) == 1


def test_what_ran_before_the_executor_started_again_is_computed_in_chunks():
    """Without chunking a request that has outgrown the budget is computed again in several steps."""
    driver = Driver(budget=8, chunked=False)
    driver.submit(1, range(20, 26), max_tokens=30)
    for _ in range(20):
        driver.turn()
    driver.restart()
    driver.run()
    assert driver.outputs[1] == continuation(range(20, 26), 30)


@pytest.mark.parametrize("suspend", [Driver.restart, lambda driver: driver.core.preempt(1)])
def test_a_request_that_had_filled_the_pool_does_not_come_back(suspend):
    """It holds all blocks and its last token has none yet: all that it knows would never fit again, so it ends."""
    driver = Driver(blocks=2)
    driver.submit(1, [20, 21, 22, 23])
    while len(driver.outputs.get(1, ())) < 5:
        driver.turn()
    driver.submit(2, [30, 31, 32, 33], max_tokens=1)
    suspend(driver)
    driver.run()
    assert (driver.ended[1].finish, driver.ended[1].detail) == (Finish.LENGTH, "kv_capacity")
    assert len(driver.outputs[1]) == 5 and len(driver.outputs[2]) == 1


def test_when_the_only_row_that_the_budget_holds_preempts_itself_another_is_planned():
    """Budget 1, and the first row needs a block, but is itself the one to lose; the other goes on in the same plan."""
    driver = Driver(blocks=2, budget=1, prefill_first=True)
    driver.submit(1, [20], priority=1, max_tokens=7)
    driver.submit(2, [30], max_tokens=7)
    driver.run()
    assert driver.core.statistics.preemptions


def test_the_prompt_that_is_served_first_is_in_the_step_once():
    """After 8 steps that had no room for all of a prompt it comes first; a running prefill then, it is not again."""
    driver = Driver(budget=8, rows=8, blocks=100, chunked=False)
    for rid in range(5):
        driver.submit(rid, [20 + rid], max_tokens=9)
    driver.turn()
    driver.submit(9, [30, 31, 32, 33], max_tokens=1)
    for _ in range(8):
        assert driver.counts_of(driver.plan()) == [1] * 5
        driver.settle()
    assert driver.counts_of(driver.plan()) == [4]


def test_blocks_that_an_open_step_writes_are_not_yet_received_into():
    """The order waits for the step of a request that was aborted, whose blocks another one now has."""
    driver = consumer(depth=2, blocks=2)
    driver.submit(1, [20, 21, 22, 23])
    driver.plan()
    driver.abort(1)
    driver.submit(2, range(30, 38), remote=elsewhere())
    assert driver.plan() is None and driver.core.counts().parked == 1
    assert driver.orders == []
    driver.settle()
    assert [order.action for order in driver.core.take_transfers()] == [TransferAction.RECEIVE]


def test_blocks_that_an_open_step_writes_are_not_yet_sent():
    """The order waits for the step that was planned before the end was known."""
    driver = producer(depth=2)
    driver.submit(1, [20, 21, 22, 23], remote=FOR_OTHERS, stop_token_ids=continuation([20, 21, 22, 23], 1))
    driver.plan()
    driver.plan()
    driver.settle()
    assert driver.ended[1].finish is Finish.STOP
    assert driver.core.take_transfers() == []
    driver.settle()
    assert [order.action for order in driver.core.take_transfers()] == [TransferAction.SEND]


def test_no_decode_starves_where_prefills_come_first_and_the_budget_holds_few():
    """Twelve that decode and a budget of 1: whoever was left out most often is next, so all come equally far."""
    driver = consumer(rows=12, blocks=100, budget=1, prefill_first=True)
    for rid in range(12):
        driver.submit(rid, [20, 21], remote=elsewhere(first_token=50))
    driver.plan()
    for rid in range(12):
        driver.arrive(rid)
    for _ in range(12 * 5):
        driver.turn()
    counts = [len(driver.outputs[rid]) for rid in range(12)]
    assert max(counts) - min(counts) <= 1


def test_a_blocked_prefill_is_preempted_once():
    """A decode has preempted it in vain, its blocks being held for the other choice: no prefill is left to go."""
    driver = Driver(blocks=4, block_size=1, rows=3, budget=3, prefill_first=True, long_prefill_threshold=1)
    driver.submit((1, 2), [20, 21, 22], max_tokens=1, priority=1)
    driver.submit(3, [30], max_tokens=3)
    driver.run()
    assert len(driver.outputs[1]) == len(driver.outputs[2]) == 1
