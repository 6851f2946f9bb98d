"""Preemption by recompute: who loses its blocks, what it keeps, and how many may run afterwards.

A name in brackets is the row of the scheduling rules that the test shows; the set-up is the driver's:
block 4, 10 blocks, 4 rows, budget 64, model length 64, depth 1, unless a test says otherwise. What it does to
tokens and how often it happens is in test_regressions.py.
"""

from fourstroke.procs.scheduler.request import Phase

from .driver import Driver


def test_the_younger_loses_its_block_to_the_older():
    """Two blocks, both full: the younger is preempted and the older decodes in its block. (QA-11)"""
    driver = Driver(blocks=2)
    driver.submit(1, [1, 2, 3, 4])
    driver.submit(2, [5, 6, 7, 8])
    driver.plan()
    freed = int(driver.core.table.tables[driver.request(2).row, 0])
    driver.settle()
    step = driver.plan()
    assert (driver.rids_of(step), step.decodes.tolist()) == ([1], [True])
    assert driver.core.table.tables[step.rows[0], 1] == freed
    assert driver.request(2).phase is Phase.PREEMPTED
    assert driver.core.counts() == (1, 1, 0)


def test_a_preempted_request_holds_nothing():
    """No row, no blocks, and late reports about what it was are void. (QA-12)"""
    driver = Driver()
    driver.submit(1, [1, 2, 3, 4])
    driver.plan()
    driver.settle(5)
    request = driver.request(1)
    attempt = request.attempt
    driver.core.preempt(1)
    assert request.phase is Phase.PREEMPTED
    assert (driver.core.table.taken, driver.core.pool.free) == (0, 10)
    assert request.attempt == attempt + 1
    assert request.tokens.tolist() == [1, 2, 3, 4, 5]


def short(*max_tokens: int) -> Driver:
    """Requests that decode, of which the last was preempted, though there are blocks for all."""
    driver = Driver(blocks=400, max_model_len=1024)
    for rid, most in enumerate(max_tokens):
        driver.submit(rid, [1, 2], max_tokens=most)
    driver.turn()
    driver.core.preempt(len(max_tokens) - 1)
    return driver


def running(driver: Driver) -> list[int]:
    """The requests of the next step, which is settled."""
    rids = driver.rids_of(driver.plan())
    driver.settle()
    return rids


def test_after_a_preemption_a_request_that_ends_makes_room_for_one():
    """No more run than were left, until one of these has its last token: then one more."""
    driver = short(4, 900, 900)
    driver.submit(3, [1, 2])
    assert [running(driver) for _ in range(4)] == [[0, 1], [0, 1], [0, 1], [1, 2, 3]]


def test_after_a_preemption_an_abort_makes_no_room():
    """One that ends early is no sign that there are blocks for all: its place is taken, and no more."""
    driver = short(900, 900, 900)
    driver.submit(3, [1, 2])
    assert running(driver) == [0, 1]
    driver.abort(0)
    assert [running(driver) for _ in range(3)] == [[1, 2], [1, 2], [1, 2]]


def test_a_preemption_is_forgotten_in_time():
    """256 steps without another: all run again."""
    driver = short(900, 900, 900)
    assert all(running(driver) == [0, 1] for _ in range(256))
    assert running(driver) == [0, 1, 2]
