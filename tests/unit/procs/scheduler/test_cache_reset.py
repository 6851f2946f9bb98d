"""The prefix cache is forgotten on request: at once, not at all, or when those that run have ended.

A name in brackets is the row of the scheduling rules that the test shows; the set-up is the driver's:
block 4, 10 blocks, 4 rows, budget 64, model length 64, depth 1, with a prefix cache.
"""

import pytest

from fourstroke.common.types import Finish, TransferOutcome
from fourstroke.ipc.events import Cleared
from fourstroke.ipc.messages import RemoteKv
from fourstroke.procs.executor.fake import continuation
from fourstroke.procs.scheduler.request import Phase
from fourstroke.procs.scheduler.transfer.connector import Connector, Role

from .cache.chains import told
from .driver import Driver

ONE_TO_8 = list(range(1, 9))


def caching(**setup) -> Driver:
    return Driver(cache=True, **setup)


def test_a_reset_forgets_all_at_once():
    """Idle: one Cleared, an empty index, and an answer. (EV-6)"""
    driver = caching(publish_events=True)
    driver.submit(1, ONE_TO_8, max_tokens=1)
    driver.run()
    told(driver.core.pool)
    driver.reset_cache(99)
    assert told(driver.core.pool) == [Cleared()]
    assert driver.core.pool.index_size == 0
    assert driver.ended[99].finish is Finish.STOP
    assert not driver.core.alive


def test_a_reset_is_refused_while_anybody_runs():
    """And changes nothing."""
    driver = caching()
    driver.submit(1, ONE_TO_8, max_tokens=3)
    driver.turn()
    driver.reset_cache(99)
    assert driver.ended[99].finish is Finish.REJECTED
    assert driver.core.pool.index_size == 2
    driver.run()
    assert driver.outputs[1] == continuation(ONE_TO_8, 3)


def test_a_reset_is_refused_while_a_transfer_is_open():
    """A request has ended and its blocks are being read; with force it is done when they have been."""
    driver = caching(connector=Connector(Role(producer=True)))
    driver.submit(1, ONE_TO_8, max_tokens=1, remote=RemoteKv(prefilled=False, decoded=True))
    driver.turn()
    driver.plan()
    driver.reset_cache(98)
    driver.reset_cache(99, force=True)
    assert driver.ended[98].finish is Finish.REJECTED
    assert 99 not in driver.ended and driver.core.alive
    driver.report(1, TransferOutcome.SENT)
    driver.plan()
    assert driver.ended[99].finish is Finish.STOP
    assert not driver.core.alive


@pytest.mark.parametrize("depth", [1, 2])
def test_a_forced_reset_waits_for_those_that_run(depth):
    """Nobody is admitted until they have ended; then the cache is forgotten, and who waits is computed whole."""
    driver = caching(depth=depth, publish_events=True)
    driver.submit(1, ONE_TO_8, max_tokens=6)
    driver.turn()
    driver.submit(2, ONE_TO_8, max_tokens=6)
    driver.reset_cache(99, force=True)
    while 1 not in driver.ended:
        assert 99 not in driver.ended
        assert driver.request(2).phase is Phase.FRESH
        driver.turn()
    driver.run()
    assert driver.ended[99].finish is Finish.STOP
    assert driver.outputs == dict.fromkeys((1, 2), continuation(ONE_TO_8, 6))
    assert driver.opened[2] == 0
    kinds = [type(event) for event in told(driver.core.pool)]
    assert kinds.count(Cleared) == 1
    assert kinds.index(Cleared) < len(kinds) - 1
