"""A block pool that shrinks and grows, and blocks that are reserved."""

import numpy as np
import pytest

from fourstroke.ipc.events import Removed
from fourstroke.procs.scheduler.cache.blocks import BlockPool
from fourstroke.procs.scheduler.cache.residency import Hit

from .chains import NO_BLOCKS, NO_KEYS, Cache, Table, cached_pool, column, taken, told


def test_retiring_a_vacant_block():
    """The last block leaves, and is not given out any more. (BK-15)"""
    pool = BlockPool(3)
    assert pool.retire_top() == (2, None)
    assert (pool.size, pool.free, taken(pool, 2)) == (2, 2, [0, 1])
    pool.check(column(0, 1))


def test_retiring_a_cached_block():
    """Its digest is evicted. (BK-15)"""
    lost = []
    cache = cached_pool(2, 0, 1, events=True, on_evict=lost.extend)
    told(cache.pool)
    assert cache.pool.retire_top() == (2, None)
    assert [cache.hits([block] * 5) for block in range(3)] == [1, 1, 0]
    assert told(cache.pool) == [Removed(tuple(cache.digests([2] * 4)))]
    assert lost == [2]
    cache.check()


def test_retiring_the_beginning_of_chains():
    """What follows it in any chain goes with it, deepest first, and what does not stays."""
    cache = Cache(6, events=True)
    other = cache.admit([9] * 4)
    fillers = cache.pool.take(4)
    beginning = cache.admit([1] * 4)
    assert beginning.blocks.tolist() == [5]
    cache.pool.release(fillers)
    left, deeper = cache.admit([1] * 4 + [2] * 4), cache.admit([1] * 4 + [3] * 8)
    cache.end(left, other, deeper, beginning)
    told(cache.pool)
    assert cache.pool.retire_top() == (5, None)
    two, three = cache.digests([1] * 4 + [2] * 4), cache.digests([1] * 4 + [3] * 8)
    assert told(cache.pool) == [Removed((two[1], three[2], three[1], three[0]))]
    assert cache.hits([9] * 5) == 1
    cache.check()


def test_retiring_the_middle_of_a_chain():
    """What comes before it stays."""
    cache = Cache(3, events=True)
    cache.pool.take(3)
    table = Table(np.arange(12, dtype=np.int32), NO_KEYS, (), cache.digests(range(12)), column(0, 2, 1), 0)
    cache.tables.append(table)
    cache.publish(table)
    cache.end(table)
    told(cache.pool)
    assert cache.pool.retire_top() == (2, None)
    assert told(cache.pool) == [Removed((table.digests[2], table.digests[1]))]
    assert cache.hits(range(13)) == 1
    cache.check()


def test_retiring_a_copy():
    """Where another block has its digest, only the block leaves."""
    cache = Cache(3, events=True)
    tables = [cache.admit(range(8)), cache.admit(range(4), use_hits=False)]
    assert tables[1].blocks.tolist() == [2]
    cache.end(*tables)
    told(cache.pool)
    assert cache.pool.retire_top() == (2, None)
    assert told(cache.pool) == []
    assert cache.hits(range(9)) == 2
    cache.check()


@pytest.mark.parametrize("cached", [True, False])
def test_retiring_a_block_that_two_hold(cached):
    """It moves with its digest and both holders, to a vacant block or the least recently used one. (BK-15)"""
    cache = Cache(3, events=True)
    others = [cache.open([number] * 4) for number in range(2)]
    for other in others if cached else ():
        cache.publish(other)
    moved = cache.admit([7] * 4)
    assert moved.blocks.tolist() == [2]
    cache.pool.hold(moved.blocks)
    cache.end(others[1], others[0])
    told(cache.pool)
    target = 1 if cached else 0
    assert cache.pool.retire_top() == (2, target)
    assert told(cache.pool) == ([Removed(tuple(others[1].digests))] if cached else [])
    assert cache.pool.find(moved.digests).tolist() == [target]
    assert cache.pool.probe(moved.digests) == Hit(1, 1)
    cache.pool.check(column(target, target))
    cache.pool.release(column(target, target))
    assert cache.pool.probe(moved.digests) == Hit(1, 0)
    cache.pool.check(NO_BLOCKS)


def test_what_cannot_be_retired():
    """A held block when nothing is free, and a block of an empty pool. (BK-15)"""
    pool = BlockPool(2)
    held = pool.take(2)
    assert pool.retire_top() is None
    pool.check(held)
    assert pool.size == 2
    assert BlockPool(0).retire_top() is None


def test_extending():
    """Up to the largest size, by vacant blocks; a pool that is told nothing stays as it is. (BK-16)"""
    pool = BlockPool(2, max_size=4)
    pool.take(2)
    assert pool.extend(1) == 1
    assert (pool.size, pool.digest(2), taken(pool, 1)) == (3, None, [2])
    assert [pool.extend(5), pool.extend(1)] == [1, 0]
    assert taken(pool, 1) == [3]
    assert BlockPool(2).extend(1) == 0
    with pytest.raises(ValueError, match="at most 4"):
        BlockPool(5, max_size=4)


def test_a_pool_that_shrank_grows_again():
    """The block that comes back is empty."""
    cache = cached_pool(0, 1)
    cache.pool.retire_top()
    assert cache.pool.extend(1) == 1
    assert cache.hits([1] * 5) == 0
    cache.check()
    assert taken(cache.pool, 2) == [1, 0]


def test_reserving():
    """Exactly what is free, if it is enough; else nothing changes. (BK-17)"""
    pool = BlockPool(8)
    pool.take(8)
    pool.release(column(7, 0, 2, 5))
    assert pool.reserve(1, 4).tolist() == [0, 2, 5, 7]
    pool.release(column(1))
    assert pool.reserve(2, 2) is None
    assert pool.free == 1
    pool.check(column(3, 4, 6))


def test_giving_back_what_was_reserved():
    """Only its owner can, and only all of it. (BK-17)"""
    pool = BlockPool(4)
    ids = pool.reserve(1, 2)
    for owner, given in ((2, ids), (1, ids[:1]), (1, column(0, 2)), (1, column(0, 0, 1)), (1, NO_BLOCKS)):
        with pytest.raises(ValueError, match="not reserved"):
            pool.release_reserved(owner, given)
    with pytest.raises(ValueError, match="already"):
        pool.reserve(1, 1)
    assert pool.free == 2
    pool.release_reserved(1, ids[::-1])
    assert pool.free == 4
    pool.check(NO_BLOCKS)


def test_a_reserved_block_is_not_retired():
    """The pool stays as it is until the owner has given it back. (BK-17)"""
    pool = BlockPool(2)
    ids = pool.reserve(1, 2)
    assert pool.retire_top() is None
    pool.release_reserved(1, ids)
    assert pool.retire_top() == (1, None)
