"""How transfers end, through the scheduler's core: failures, time-outs, sends, and an executor that starts again.

A name in brackets is the row of the scheduling rules that the test shows; the set-up is the driver's:
block 4, 10 blocks, 4 rows, budget 64, model length 64, depth 1, unless a test says otherwise.
"""

import pytest

from fourstroke.common.types import Finish, TransferAction, TransferOutcome
from fourstroke.procs.executor.fake import continuation
from fourstroke.procs.scheduler.transfer.connector import Connector, Role

from .driver import Driver
from .remote import FOR_OTHERS, actions, consumer, elsewhere, producer, prompt, rids

RECEIVED, SENT, FAILED, CANCELLED = (
    TransferOutcome.RECEIVED,
    TransferOutcome.SENT,
    TransferOutcome.FAILED,
    TransferOutcome.CANCELLED,
)


# What does not come


def test_a_failed_request_is_prefilled_here():
    """It is marked, so that it is not fetched again. (TR-5)"""
    driver = consumer()
    driver.submit(1, prompt(1, 6), max_tokens=5, remote=elsewhere(77))
    driver.plan()
    driver.report(1, FAILED)
    step = driver.plan()
    assert (rids(driver, step), driver.counts_of(step), step.starts.tolist()) == ([1], [6], [0])
    assert driver.request(1).transfer_failed
    driver.run()
    assert driver.outputs[1] == continuation(prompt(1, 6), 5)
    assert (len(driver.orders), driver.core.statistics.transfers_failed) == (1, 1)


def test_a_failed_request_may_end_instead():
    """Where that is asked for, with an error that says what happened."""
    driver = consumer(connector=Connector(Role(consumer=True), fail=True))
    driver.submit(1, prompt(1, 6), remote=elsewhere())
    driver.plan()
    driver.report(1, FAILED)
    assert driver.plan() is None
    assert driver.ended[1].finish is Finish.ERROR
    assert "did not arrive" in driver.ended[1].detail
    assert (driver.core.alive, driver.core.pool.free) == (False, 10)


def test_choices_whose_kv_does_not_come_are_prefilled_once():
    """Nobody asks a second time for what failed."""
    driver = consumer()
    driver.submit((1, 2), prompt(1, 10), max_tokens=4, remote=elsewhere())
    driver.plan()
    driver.report(1, FAILED)
    driver.run()
    assert len(driver.orders) == 1
    assert driver.outputs == dict.fromkeys((1, 2), continuation(prompt(1, 10), 4))
    assert driver.core.statistics.prompt_tokens == 10 + 2


# Time-outs, and reports that fit nothing


def test_what_takes_too_long_is_prefilled_here_at_its_place():
    """After 60 s a cancel, and nothing more until that is confirmed; then it goes before the younger one. (TR-11)"""
    driver = consumer(rows=1)
    driver.submit(1, prompt(1, 8), max_tokens=2, remote=elsewhere(77))
    driver.submit(2, prompt(2, 8), max_tokens=2)
    driver.plan()
    assert driver.core.next_due_s == 60
    for driver.now in (59.9, 60.0, 100.0):
        assert driver.plan() is None
        assert driver.core.counts() == (0, 1, 1)
    assert actions(driver) == [(1, TransferAction.RECEIVE), (1, TransferAction.CANCEL)]
    driver.report(1, CANCELLED)
    step = driver.plan()
    assert (rids(driver, step), driver.counts_of(step), step.starts.tolist()) == ([1], [8], [0])
    driver.run()
    assert driver.outputs == {rid: continuation(prompt(rid, 8), 2) for rid in (1, 2)}


def test_blocks_are_not_reused_before_a_cancel_is_confirmed():
    """Two of four blocks may still be written: who runs beside them gets a block when they are free."""
    driver = consumer(blocks=4)
    driver.submit(1, prompt(1, 8), max_tokens=2, remote=elsewhere(77))
    driver.submit(2, prompt(2, 8), max_tokens=2)
    driver.turn()
    driver.now = 60.0
    for _ in range(3):
        assert driver.plan() is None
    assert driver.ended == {}
    driver.report(1, CANCELLED)
    assert rids(driver, driver.plan()) == [2]
    driver.run()
    assert driver.outputs == {rid: continuation(prompt(rid, 8), 2) for rid in (1, 2)}


def test_reports_that_fit_nothing_change_nothing():
    """An unknown id, an old epoch, a second time, the other role: dropped and counted. (TR-12)"""
    driver = consumer()
    driver.submit(1, prompt(1, 4), max_tokens=4, remote=elsewhere())
    driver.plan()
    driver.report(9, RECEIVED, epoch=0)
    driver.report(1, RECEIVED, epoch=1)
    driver.report(1, SENT)
    assert driver.plan() is None
    assert (driver.core.counts(), driver.core.connector.dropped) == ((0, 0, 1), 3)
    driver.arrive(1)
    driver.report(1, RECEIVED)
    driver.run()
    driver.report(1, RECEIVED)
    assert driver.plan() is None
    assert driver.core.connector.dropped == 5
    assert driver.outputs[1] == continuation(prompt(1, 4), 4)


# A request is sent


def test_blocks_are_held_until_they_are_sent():
    """The last word says where the KV lies; alive until it is sent, then no block is used. (RG-22)"""
    driver = producer()
    driver.submit(1, prompt(1, 10), max_tokens=1, remote=FOR_OTHERS)
    driver.turn()
    ended = driver.ended[1]
    assert (driver.outputs[1], ended.finish) == (continuation(prompt(1, 10), 1), Finish.LENGTH)
    assert (ended.kv.prefilled, ended.kv.host) == (True, "here:1")
    assert driver.plan() is None
    (order,) = driver.orders
    assert (order.action, order.blocks, order.remote.transfer) == (
        TransferAction.SEND,
        ended.kv.blocks,
        ended.kv.transfer,
    )
    assert (driver.core.alive, driver.core.pool.free) == (True, 7)
    driver.report(1, SENT)
    assert driver.plan() is None
    assert (driver.core.alive, driver.core.pool.free) == (False, 10)


def test_blocks_that_nobody_fetches_are_free_after_the_time_out():
    """Once the workers have let go of them."""
    driver = producer()
    driver.submit(1, prompt(1, 10), max_tokens=1, remote=FOR_OTHERS)
    driver.turn()
    driver.now = 60.0
    driver.plan()
    assert actions(driver) == [(1, TransferAction.SEND), (1, TransferAction.CANCEL)]
    assert driver.core.pool.free == 7
    driver.report(1, CANCELLED)
    driver.plan()
    assert (driver.core.alive, driver.core.pool.free) == (False, 10)


def test_what_is_not_asked_for_is_not_held():
    """A request without a peer, and one that is aborted, free their blocks when they end."""
    driver = producer()
    driver.submit(1, prompt(1, 10), max_tokens=1)
    driver.submit(2, prompt(2, 10), remote=FOR_OTHERS)
    driver.turn()
    driver.abort(2)
    assert (driver.core.alive, driver.core.pool.free) == (False, 10)


def test_a_stop_string_leaves_nothing_to_fetch():
    """Output has said the last word, without a word of where the KV lies."""
    driver = producer()
    driver.submit(1, prompt(1, 10), remote=FOR_OTHERS)
    driver.turn()
    driver.abort(1, Finish.STOP)
    assert (driver.core.alive, driver.core.pool.free) == (False, 10)


# The executor starts again


def test_what_was_on_its_way_is_asked_for_again():
    """Under a new epoch, at its place; what was to be sent is lost, and its blocks are free."""
    driver = Driver(connector=Connector(Role(consumer=True, producer=True)))
    driver.submit(1, prompt(1, 6), max_tokens=5, remote=elsewhere())
    driver.submit(2, prompt(2, 4), max_tokens=1, remote=FOR_OTHERS)
    driver.turn()
    driver.plan()
    assert driver.core.pool.free == 10 - 2 - 1
    driver.restart()
    assert (driver.core.pool.free, driver.core.counts()) == (10, (0, 1, 0))
    driver.plan()
    assert [(order.rid, order.epoch, order.action) for order in driver.orders] == [
        (1, 0, TransferAction.RECEIVE),
        (2, 0, TransferAction.SEND),
        (1, 1, TransferAction.RECEIVE),
    ]
    driver.report(1, RECEIVED, epoch=0)
    assert driver.plan() is None
    driver.arrive(1)
    driver.run()
    assert driver.outputs[1] == continuation(prompt(1, 6), 5)


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("turns", range(5))
def test_all_goes_on_from_known_tokens(depth, turns):
    """Wherever the executor dies: fresh, prefilling, decoding and preempted requests say what they would have said."""
    driver = Driver(depth=depth, budget=9, blocks=9, cache=True, rows=3)
    for rid in range(5):
        driver.submit(rid, prompt(rid, 3 + 2 * rid), max_tokens=8)
    for _ in range(turns):
        driver.turn()
    driver.restart()
    assert (driver.core.pool.free, driver.core.pool.index_size) == (9, 0)
    driver.run()
    assert driver.outputs == {rid: continuation(prompt(rid, 3 + 2 * rid), 8) for rid in range(5)}
