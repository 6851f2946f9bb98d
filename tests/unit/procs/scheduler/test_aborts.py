"""Requests that are ended from outside, by an abort or by their deadline, in every state that they can be in.

A name in brackets is the row of the scheduling rules that the test shows; the set-up is block 4, 20 blocks, 4 rows,
budget 4, model length 64. A neighbour runs beside the request and says what it would have said alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from fourstroke.common.types import Finish, TransferAction, TransferOutcome
from fourstroke.procs.executor.fake import continuation
from fourstroke.procs.scheduler.request import Phase

from .driver import Driver
from .remote import actions, blocks_of, consumer, elsewhere, prompt, row_of

ENDED, NEIGHBOUR = 1, 2
TIMEOUT_S = 10.0


def beside_a_neighbour(depth: int = 1) -> Driver:
    driver = consumer(blocks=20, budget=4, depth=depth, cache=True)
    driver.submit(NEIGHBOUR, prompt(NEIGHBOUR, 3), max_tokens=12)
    driver.turn()
    return driver


def come(driver: Driver, tokens: int = 6, **fields) -> None:
    driver.submit(ENDED, prompt(ENDED, tokens), max_tokens=30, timeout_s=TIMEOUT_S, **fields)


def fresh(driver: Driver) -> None:
    come(driver)
    assert driver.request(ENDED).phase is Phase.FRESH


def in_prefill(driver: Driver) -> None:
    come(driver)
    driver.plan()
    while driver.pending:
        driver.settle()
    row = row_of(driver, ENDED)
    assert 0 < driver.core.table.committed[row] < 6


def decoding(driver: Driver) -> None:
    come(driver)
    while len(driver.outputs.get(ENDED, ())) < 2:
        driver.turn()
    while driver.pending:
        driver.settle()


def in_flight(driver: Driver) -> None:
    come(driver)
    while len(driver.outputs.get(ENDED, ())) < 2:
        driver.turn()
    if not driver.pending:
        driver.plan()
    assert driver.core.table.in_flight[row_of(driver, ENDED)] > 0


def preempted(driver: Driver) -> None:
    decoding(driver)
    driver.core.preempt(ENDED)
    assert driver.request(ENDED).phase is Phase.PREEMPTED


STATES = [fresh, in_prefill, decoding, in_flight, preempted]


def by_abort(driver: Driver) -> Finish:
    driver.abort(ENDED)
    return Finish.ABORT


def by_deadline(driver: Driver) -> Finish:
    driver.now = TIMEOUT_S
    driver.plan()
    return Finish.TIMEOUT


def taken(driver: Driver, rid: int) -> int:
    """Blocks that a live request holds."""
    return len(blocks_of(driver, rid)) if rid in driver.core else 0


def check_neighbour(driver: Driver) -> None:
    driver.run()
    assert driver.outputs[NEIGHBOUR] == continuation(prompt(NEIGHBOUR, 3), 12)
    assert (driver.core.pool.free, driver.core.alive) == (20, False)


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("end", [by_abort, by_deadline])
def test_a_request_ends_in_any_state(depth, state: Callable, end: Callable):
    """One last word, the outputs that it had, its blocks back in the same call, and never a row again. (RQ-8)"""
    driver = beside_a_neighbour(depth)
    state(driver)
    outputs = list(driver.outputs.get(ENDED, ()))
    finish = end(driver)
    assert (driver.ended[ENDED].finish, driver.ended[ENDED].detail) == (finish, "")
    assert ENDED not in driver.core
    assert driver.core.pool.free == 20 - taken(driver, NEIGHBOUR)
    driver.abort(ENDED)
    check_neighbour(driver)
    assert driver.outputs.get(ENDED, []) == outputs == continuation(prompt(ENDED, 6), len(outputs))


@pytest.mark.parametrize("end", [by_abort, by_deadline])
@pytest.mark.parametrize("answer", [TransferOutcome.CANCELLED, TransferOutcome.RECEIVED, TransferOutcome.FAILED])
def test_blocks_of_a_parked_request_stay_until_nobody_writes_them(end: Callable, answer):
    """Its last word comes at once, and the workers are told to stop; its blocks come back when they have. (RQ-8)"""
    driver = beside_a_neighbour()
    come(driver, remote=elsewhere(77))
    driver.plan()
    driver.settle()
    assert driver.core.counts().parked == 1
    finish = end(driver)
    assert driver.ended[ENDED].finish is finish
    assert driver.core.counts().parked == 0
    driver.plan()
    assert actions(driver) == [(ENDED, TransferAction.RECEIVE), (ENDED, TransferAction.CANCEL)]
    assert driver.core.pool.free == 20 - 2 - taken(driver, NEIGHBOUR)
    assert driver.core.alive
    driver.report(ENDED, answer)
    check_neighbour(driver)
    assert ENDED not in driver.outputs


@pytest.mark.parametrize("rid", [ENDED, 77])
def test_an_id_that_has_ended_or_never_was_changes_nothing(rid):
    """It has its last word, or is nobody's. (RQ-8)"""
    driver = beside_a_neighbour()
    driver.submit(ENDED, prompt(ENDED, 3), max_tokens=2)
    while ENDED not in driver.ended:
        driver.turn()
    told, counts, free = dict(driver.ended), driver.core.counts(), driver.core.pool.free
    driver.abort(rid)
    assert (driver.ended, driver.core.counts(), driver.core.pool.free) == (told, counts, free)
    check_neighbour(driver)


def test_a_late_result_is_dropped():
    """Depth 2: two steps with the request are open; its row and blocks are the next one's, which says its own."""
    driver = consumer(blocks=2, rows=1, depth=2)
    driver.submit(ENDED, prompt(ENDED, 6))
    driver.plan()
    driver.plan()
    driver.abort(ENDED)
    driver.submit(3, prompt(3, 6), max_tokens=2)
    driver.settle()
    driver.plan()
    driver.settle()
    assert driver.core.statistics.late_results == 2
    driver.run()
    assert driver.outputs == {3: continuation(prompt(3, 6), 2)}


def test_what_was_computed_stays_cached():
    """Half of a prompt; the same prompt again goes on behind it."""
    driver = consumer(budget=4, cache=True)
    driver.submit(1, prompt(1, 9))
    driver.turn()
    driver.abort(1)
    driver.submit(2, prompt(1, 9), max_tokens=3)
    assert driver.plan().starts.tolist() == [4]
    driver.run()
    assert driver.outputs == {2: continuation(prompt(1, 9), 3)}


# Deadlines


def test_a_deadline_is_due_at_its_time_and_not_before():
    """Also while no step can be planned. The core says when it wants to be asked."""
    driver = consumer(blocks=20)
    assert driver.core.next_due_s == math.inf
    driver.now = 5.0
    driver.submit(1, prompt(1, 4), timeout_s=3.0)
    driver.submit(2, prompt(2, 4), timeout_s=2.0)
    driver.submit(3, prompt(3, 4), max_tokens=3)
    assert driver.core.next_due_s == 7.0
    driver.plan()
    driver.now = 6.9
    driver.plan()
    assert driver.ended == {}
    driver.now = 7.0
    assert driver.plan() is None, "a step is open, and the depth is 1"
    assert (driver.ended.keys(), driver.ended[2].finish) == ({2}, Finish.TIMEOUT)
    assert driver.core.next_due_s == 8.0
    driver.run()
    assert driver.ended[1].finish is Finish.LENGTH


def test_who_has_ended_has_no_deadline():
    """Nothing is said when its time comes."""
    driver = consumer()
    driver.submit(1, prompt(1, 4), max_tokens=2, timeout_s=3.0)
    driver.run()
    driver.now = 3.0
    assert driver.plan() is None
    assert driver.ended[1].finish is Finish.LENGTH
    assert driver.core.next_due_s == math.inf


def test_requests_that_are_due_together_end_together():
    """In one plan, in whatever states they are, and the next one is admitted in the same."""
    driver = consumer(rows=2)
    for rid in range(4):
        driver.submit(rid, prompt(rid, 4), timeout_s=3.0)
    driver.submit(9, prompt(9, 4), max_tokens=2)
    driver.turn()
    driver.now = 3.0
    step = driver.plan()
    assert {rid: ended.finish for rid, ended in driver.ended.items()} == dict.fromkeys(range(4), Finish.TIMEOUT)
    assert driver.core.table.rid[step.rows].tolist() == [9]
