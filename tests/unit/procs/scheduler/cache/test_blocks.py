"""The block pool: what is given out, what stays cached and is found."""

import numpy as np
import pytest

from fourstroke.ipc.block_hash import ROOT
from fourstroke.ipc.events import Stored
from fourstroke.ipc.messages import CacheKeys, Image
from fourstroke.procs.scheduler.cache.blocks import BlockPool, blocks_for
from fourstroke.procs.scheduler.cache.residency import Chains, Contents, Hit

from .chains import Cache, cached_pool, column, one_run, taken, told

ONE_TO_8 = list(range(1, 9))


# Giving out


def test_blocks_for_tokens():
    """Rounded up. (BK-2, BK-8)"""
    assert [blocks_for(tokens, 4) for tokens in (0, 4, 5, 9, 12)] == [0, 1, 2, 3, 3]
    assert [blocks_for(tokens, 1) for tokens in (2, 3)] == [2, 3]


def test_a_table_that_ends_without_being_published():
    """8 tokens give two blocks back and leave nothing to be found. (BK-2)"""
    cache = Cache(10)
    cache.end(cache.open(ONE_TO_8))
    assert cache.pool.free == 10
    assert cache.hits([*ONE_TO_8, 9]) == 0


@pytest.mark.parametrize(
    ("size", "block", "tokens", "new", "blocks"),
    [(2, 4, 4, 5, 2), (1, 4, 4, 5, None), (6, 4, 14, 19, 5), (4, 4, 14, 19, None), (3, 1, 2, 3, 3), (3, 4, 8, 12, 3)],
)
def test_a_table_grows_by_all_blocks_or_none(size, block, tokens, new, blocks):
    """What a table needs for more tokens is taken whole; if the pool has not enough, nothing changes. (BK-7, BK-8)"""
    cache = Cache(size, block)
    table = cache.open(range(tokens))
    before = cache.pool.free
    ids = cache.pool.take(blocks_for(new, block) - len(table.blocks))
    assert (ids is None) == (blocks is None)
    if ids is None:
        assert cache.pool.free == before
    else:
        assert len(set(table.blocks.tolist() + ids.tolist())) == blocks


def test_vacant_blocks_come_lowest_first():
    """Whatever the order in which they were given back."""
    pool = BlockPool(8)
    pool.take(8)
    pool.release(column(5, 0, 7, 2))
    assert taken(pool, 3) == [0, 2, 5]
    assert taken(pool, 2) is None
    assert taken(pool, 1) == [7]
    assert taken(pool, 0) == []


def test_vacant_blocks_are_found_in_a_large_pool():
    """Far behind blocks that are held, beyond the first look."""
    pool = BlockPool(100_000)
    pool.take(100_000)
    pool.release(column(99_999, 3, 70_000))
    assert taken(pool, 3) == [3, 70_000, 99_999]


def test_vacant_before_cached():
    """Taking what is vacant leaves what is cached alone. (BK-13)"""
    cache = cached_pool(0, 1, size=4)
    assert taken(cache.pool, 2) == [2, 3]
    assert [cache.hits([block] * 5) for block in (0, 1)] == [1, 1]


def test_vacant_before_cached_though_released_later():
    """Unhashed blocks that were released after cached ones come first all the same. (RG-18)"""
    cache = Cache(4)
    table = cache.admit(ONE_TO_8)
    later = cache.pool.take(2)
    cache.end(table)
    cache.pool.release(later)
    assert taken(cache.pool, 2) == later.tolist()


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
def test_cached_blocks_come_least_recently_used_first(order):
    """In the order of release, not of ids. (BK-14)"""
    assert taken(cached_pool(*order).pool, 3) == list(order)


def test_a_hit_makes_a_block_most_recent():
    """Held and released again, the oldest block is given out last."""
    cache = cached_pool(0, 1, 2)
    cache.pool.hold(column(0))
    cache.pool.release(column(0))
    assert taken(cache.pool, 3) == [1, 2, 0]


def test_deep_blocks_are_evicted_first():
    """A table is released deepest block first, so that its beginning is found longest."""
    cache = Cache(3)
    cache.run(range(12))
    for left in (2, 1, 0):
        cache.pool.take(1)
        assert cache.hits(range(13)) == left


def test_tables_that_end_in_one_call_are_released_one_after_the_other():
    """A block that two of them share counts as released with the second."""
    cache = Cache(3)
    first, second = cache.admit([1] * 4 + [2] * 4), cache.admit([1] * 4 + [3] * 4)
    assert [first.blocks.tolist(), second.blocks.tolist()] == [[0, 1], [0, 2]]
    cache.end(first, second)
    cache.check()
    assert taken(cache.pool, 3) == [1, 2, 0]


# What is found


def test_a_cached_chain_is_found():
    """As far as it goes, and no other."""
    cache = Cache(10)
    cache.run(ONE_TO_8)
    assert cache.hits([1, 2, 3, 4, 9, 10, 11, 12]) == 1
    assert cache.hits([*ONE_TO_8, 9]) == 2
    assert cache.hits([5, 6, 7, 8, 1, 2, 3, 4, 9]) == 0


def test_what_is_used_up_is_not_found():
    """Two blocks that were cached and are taken carry nothing; churn leaves no trace. (BK-6)"""
    cache = Cache(2)
    cache.run(ONE_TO_8)
    cache.end(cache.open(range(20, 28)))
    assert cache.pool.probe(cache.digests(ONE_TO_8)).blocks == 0
    churned = Cache(4)
    for round_ in range(20):
        churned.run([round_] * 4)
        assert churned.pool.index_size <= 4
        churned.check()


@pytest.mark.parametrize(("tokens", "count", "hits"), [(12, 3, 2), (10, 2, 2)])
def test_received_blocks(tokens, count, hits):
    """Full blocks that came from elsewhere are published like computed ones, and found by the same prompt. (BK-12)"""
    cache = Cache(10)
    table = cache.open(range(tokens))
    assert cache.publish(table) == count
    assert cache.hits(range(tokens)) == hits


def test_nothing_is_kept_without_a_cache():
    """Choices of one prompt can share its blocks while one of them runs; then they are vacant. (BK-12)"""
    cache = Cache(10, keep=False, events=True)
    table = cache.admit(range(12))
    assert cache.hits(range(12)) == 2
    sharer = cache.open(range(12))
    assert sharer.blocks[:2].tolist() == table.blocks[:2].tolist()
    cache.end(table)
    assert cache.hits(range(12)) == 2
    cache.end(sharer)
    assert (cache.hits(range(12)), cache.pool.index_size, cache.pool.free) == (0, 0, 10)
    assert taken(cache.pool, 4) == [0, 1, 2, 3]


def test_how_much_of_a_hit_is_in_use():
    """Blocks in use come with a hit without costing a free one; they are counted apart."""
    cache = Cache(10)
    cache.run(range(12))
    digests = cache.digests(range(12))
    assert cache.pool.probe(digests) == Hit(3, 0)
    cache.open(range(9))
    assert cache.pool.probe(digests) == Hit(3, 2)
    assert cache.pool.probe([]) == Hit(0, 0)


def test_a_copy_in_use_is_preferred():
    """Of several blocks with one digest a request gets one that is in use, whichever ended first."""
    for ends in (0, 1):
        cache = Cache(10)
        both = [cache.admit(range(8), use_hits=False) for _ in range(2)]
        cache.end(both[ends])
        lives = both[1 - ends]
        assert cache.pool.find(cache.digests(range(8))).tolist() == lives.blocks.tolist()
        assert cache.pool.probe(cache.digests(range(8))).held == 2
        cache.check()


@pytest.mark.parametrize("first", [0, 1])
def test_a_copy_outlives_another(first):
    """A digest stays in the cache until the last block that carries it is gone, and names that block."""
    cache = Cache(4)
    both = [cache.admit(range(8), use_hits=False) for _ in range(2)]
    cache.end(both[first], both[1 - first])
    assert taken(cache.pool, 2) == both[first].blocks[::-1].tolist()
    assert cache.pool.find(cache.digests(range(8))).tolist() == both[1 - first].blocks.tolist()
    assert cache.pool.index_size == 2


def test_no_false_roots():
    """Blocks behind a block that is not published are not published; a block's digest is told."""
    cache = Cache(10, events=True)
    table = cache.open(range(12))
    table.published = 1
    assert cache.publish(table) == 0
    assert (cache.pool.index_size, told(cache.pool)) == (0, [])
    table.published = 0
    assert cache.publish(table, 2) == 2
    assert [cache.pool.digest(block) for block in table.blocks.tolist()] == [*table.digests[:2], None]


def test_a_block_is_published_once():
    """Publishing it again changes and tells nothing."""
    cache = Cache(10, events=True)
    table = cache.admit(range(8))
    told(cache.pool)
    table.published = 0
    assert cache.publish(table) == 0
    assert told(cache.pool) == []
    cache.check()


def test_a_chain_may_have_another_root():
    """The pool is told where chains begin; the usual root is then unknown."""
    pool = BlockPool(2, root=bytes(32), events=True)
    ids, tokens = pool.take(1), np.arange(4, dtype=np.int32)[None]
    assert pool.publish(one_run(ids, [b"x" * 32], ROOT, tokens)) == 0
    assert pool.publish(one_run(ids, [b"x" * 32], bytes(32), tokens)) == 1
    assert told(pool, bytes(32)) == [Stored((b"x" * 32,), None, tokens.tobytes(), 4)]


def test_digests_that_look_alike_outside():
    """Two digests with the same last 8 bytes are two digests."""
    pool = BlockPool(4)
    tokens = np.zeros((1, 4), np.int32)
    alike = [bytes([number]) * 24 + b"the same" for number in range(2)]
    assert alike[0][-8:] == alike[1][-8:]
    pool.publish(one_run(pool.take(1), [alike[0]], ROOT, tokens))
    assert [pool.probe([one]).blocks for one in alike] == [1, 0]
    pool.publish(one_run(pool.take(1), [alike[1]], ROOT, tokens))
    assert [pool.find([one]).tolist() for one in alike] == [[0], [1]]
    pool.release(column(0, 1))
    pool.take(3)
    assert [pool.probe([one]).blocks for one in alike] == [0, 1]


def test_runs_that_are_published_together():
    """What two runs share is told once, with the first; a run of which the parent is unknown stays out, alone.

    A digest may end in zeros.
    """
    pool = BlockPool(5, events=True)
    ids, tokens = pool.take(5), np.arange(20, dtype=np.int32).reshape(5, 4)
    a, b, c, d = (bytes([number]) * 31 + b"\0" for number in range(4))
    runs = Chains(ids, [a, b, d, a, c], np.array([2, 1, 2]), [ROOT, bytes(32), ROOT], Contents(tokens, {}))
    assert pool.publish(runs) == 4
    assert told(pool) == [
        Stored((a, b), None, tokens[:2].tobytes(), 4),
        Stored((c,), a, tokens[4:].tobytes(), 4),
    ]
    assert [pool.digest(block) for block in ids.tolist()] == [a, b, None, a, c]
    assert pool.probe([a, c]) == Hit(2, 2)
    pool.check(ids)


def test_keys_tell_blocks_apart():
    """The same tokens with another image, adapter or salt are not found. (RG-19)"""
    cache = Cache(10)
    nine = [7] * 9
    image = Image("A", 0, 9, b"")
    cache.run(nine, images=[image])
    assert cache.hits(nine, images=[image]) == 2
    assert cache.hits(nine, images=[Image("B", 0, 9, b"")]) == 0
    for keys in (CacheKeys(), CacheKeys(adapter="A"), CacheKeys(salt="A")):
        assert cache.hits(nine, keys=keys) == 0


# Nothing grows


def containers(value) -> dict[int, int]:
    """The lengths of all lists, dicts and arrays that a pool and its parts have."""
    if isinstance(value, (list, dict, np.ndarray)):
        return {id(value): len(value)}
    if not type(value).__module__.startswith("fourstroke"):
        return {}
    return {key: length for part in vars(value).values() for key, length in containers(part).items()}


@pytest.mark.parametrize(("size", "prompt", "times"), [(8, 8, 1000), (256, 256, 2000)])
def test_no_container_grows(size, prompt, times):
    """The same prompt again and again: arrays keep their lengths, and nothing else has more than the blocks. (RG-17)"""
    cache = Cache(size, events=True)
    before = containers(cache.pool)
    for _ in range(times):
        cache.run(range(prompt))
        told(cache.pool)
    after = containers(cache.pool)
    cache.check()
    assert all(length <= size or before.get(key) == length for key, length in after.items())
    assert max(after.values()) <= 2 * size


# Books


@pytest.mark.parametrize("held", [[], [0], [0, 0, 1], [0, 1, 2]])
def test_the_books_notice(held):
    """Blocks that the tables do not hold as often as the pool believes."""
    pool = BlockPool(4)
    pool.take(2)
    pool.check(column(0, 1))
    with pytest.raises(AssertionError):
        pool.check(column(*held))
