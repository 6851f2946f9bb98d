"""What the block pool tells of the prefix cache, and to whom."""

import numpy as np
import pytest

from fourstroke.ipc.events import Cleared, Removed, Stored
from fourstroke.ipc.messages import CacheKeys, Image
from fourstroke.procs.scheduler.cache import bulletin

from .chains import Cache, taken, told

ONE_TO_8 = list(range(1, 9))


def test_stored_is_told_once():
    """One event for the blocks that a request has published, and then nothing. (EV-3)"""
    cache = Cache(8, events=True)
    table = cache.admit(ONE_TO_8)
    tokens = np.array(ONE_TO_8, np.int32).tobytes()
    assert told(cache.pool) == [Stored(tuple(table.digests), None, tokens, 4, medium="GPU")]
    assert told(cache.pool) == []


def test_stored_tells_the_run_that_is_new():
    """A chain that goes on behind blocks that were there is told from there, with its parent and its keys."""
    cache = Cache(10, events=True)
    keys = CacheKeys("name", "/path", "s1")
    cache.run(range(4), keys=keys)
    told(cache.pool)
    table = cache.admit(range(12), keys=keys, use_hits=False)
    assert told(cache.pool) == [
        Stored(tuple(table.digests[1:]), table.digests[0], table.tokens[4:].tobytes(), 4, (("name",),) * 2, "name")
    ]


def test_keys_are_told_by_block():
    """An entry for each block, untagged; none at all if no block has keys."""
    cache = Cache(10, events=True)
    cache.admit(range(12), keys=CacheKeys(salt="s1"), images=[Image("A", 1, 2, b"")])
    (event,) = told(cache.pool)
    assert (event.keys, event.adapter) == (((("A", 1), "s1"), None, None), None)
    cache.admit(range(50, 58))
    (event,) = told(cache.pool)
    assert event.keys is None


@pytest.mark.parametrize("live", [True, False])
def test_a_second_copy_is_silent(live):
    """The same prompt again tells nothing of what is stored, whether the first one lives or is cached. (EV-4)"""
    cache = Cache(8, events=True)
    table = cache.admit(ONE_TO_8)
    if not live:
        cache.end(table)
    told(cache.pool)
    again = cache.admit(ONE_TO_8)
    assert told(cache.pool) == []
    cache.end(again)
    assert told(cache.pool) == []


def test_the_end_of_a_copy_is_silent():
    """Removed is told when the last copy goes."""
    cache = Cache(2, events=True)
    cache.end(*[cache.admit([1] * 4, use_hits=False) for _ in range(2)])
    told(cache.pool)
    cache.pool.take(1)
    assert told(cache.pool) == []
    cache.pool.take(1)
    assert told(cache.pool) == [Removed(tuple(cache.digests([1] * 4)))]


def test_removed_comes_before_the_stored_that_reuses_the_block():
    """And where there is room nothing is removed. (EV-5)"""
    cache = Cache(1, events=True)
    cache.run([1, 2, 3, 4])
    told(cache.pool)
    cache.admit([9] * 4)
    first, second = told(cache.pool)
    assert first == Removed(tuple(cache.digests([1, 2, 3, 4])))
    assert isinstance(second, Stored)
    roomy = Cache(8, events=True)
    roomy.run([1, 2, 3, 4])
    roomy.run([1, 2, 3, 4])
    assert [type(event) for event in told(roomy.pool)] == [Stored]


def test_children_are_removed_before_parents():
    """In one event, when one request takes the blocks of a chain."""
    cache = Cache(3, events=True)
    cache.run(range(12))
    told(cache.pool)
    cache.pool.take(3)
    assert told(cache.pool) == [Removed(tuple(cache.digests(range(12))[::-1]))]


def test_clearing():
    """Everything is vacant, nothing is found, and one Cleared is told, also where nothing was cached. (EV-6, RG-34)"""
    lost = []
    cache = Cache(8, events=True, on_evict=lost.extend)
    cache.run(range(12))
    told(cache.pool)
    cache.pool.clear()
    assert told(cache.pool) == [Cleared()]
    assert (cache.pool.index_size, cache.pool.free, cache.hits(range(13))) == (0, 8, 0)
    assert sorted(lost) == [0, 1, 2]
    cache.check()
    assert taken(cache.pool, 8) == list(range(8))
    cache.pool.clear()
    assert told(cache.pool) == [Cleared()]


def test_clearing_under_a_request_is_refused():
    """Blocks behind forgotten ones would become false roots."""
    cache = Cache(8)
    cache.admit(range(12))
    with pytest.raises(AssertionError, match="held"):
        cache.pool.clear()


def test_the_end_of_a_request_tells_nothing():
    """Finished, aborted or preempted: its blocks stay cached. (EV-7)"""
    cache = Cache(8, events=True)
    table = cache.admit(range(12))
    told(cache.pool)
    cache.end(table)
    assert told(cache.pool) == []
    assert cache.hits(range(13)) == 3


def test_without_events_none_is_built(monkeypatch):
    """Whatever happens. (EV-2)"""

    def fail(*_args):
        raise AssertionError("a change was described")

    monkeypatch.setattr(bulletin, "KvChange", fail)
    cache = Cache(3)
    cache.run(range(12))
    cache.run(range(20, 32))
    cache.pool.clear()
    assert told(cache.pool) == []


def test_who_keeps_something_with_a_block_is_told():
    """on_evict gets the blocks that lost their digests, copies too, in order, and not those that had none."""
    lost = []
    cache = Cache(4, on_evict=lost.append)
    cache.end(*[cache.admit([1] * 4, use_hits=False) for _ in range(2)])
    assert lost == []
    cache.pool.take(4)
    assert lost == [[0, 1]]
