"""The block pool against a naive one, over random histories; and that a prefix never leaves before what follows it."""

from collections import Counter

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from fourstroke.ipc.block_hash import ROOT
from fourstroke.ipc.events import Cleared, Removed, Stored
from fourstroke.procs.scheduler.cache.free_blocks import LruQueue
from fourstroke.procs.scheduler.cache.residency import Hit

from .chains import Cache, Table, told

BLOCK = 2
prompts = st.lists(st.integers(0, 1), min_size=1, max_size=10)


class NaivePool:
    """What the pool must do, one block at a time, in lists and dicts."""

    def __init__(self, size: int, keep: bool) -> None:
        self.size, self.keep = size, keep
        self.holders = Counter()
        self.carried: dict[int, bytes] = {}
        self.parents: dict[bytes, bytes] = {}
        self.cached: list[int] = []
        self.events: list[tuple] = []

    def vacant(self) -> list[int]:
        return [block for block in range(self.size) if not self.holders[block] and block not in self.cached]

    def take(self, count: int) -> list[int] | None:
        if count > len(self.vacant()) + len(self.cached):
            return None
        ids = self.vacant()[:count]
        evicted = self.cached[: count - len(ids)]
        self.evict(evicted)
        self.holders.update([*ids, *evicted])
        return ids + evicted

    def evict(self, blocks: list[int]) -> None:
        """Children before parents: a digest goes with the last of the blocks that carries it."""
        gone = []
        for block in blocks:
            digest = self.carried.pop(block)
            if block in self.cached:
                self.cached.remove(block)
            if digest not in self.carried.values():
                gone.append(digest)
        if gone:
            self.events.append(("removed", tuple(gone)))

    def hold(self, ids: list[int]) -> None:
        for block in ids:
            if block in self.cached:
                self.cached.remove(block)
            self.holders[block] += 1

    def release(self, ids: list[int]) -> None:
        unheld = []
        for block in ids:
            self.holders[block] -= 1
            if not self.holders[block] and block in self.carried:
                unheld.append(block)
        if self.keep:
            self.cached += unheld
        else:
            self.evict(unheld)

    def publish(self, ids: list[int], digests: list[bytes], parent: bytes) -> None:
        fresh = []
        for block, digest in zip(ids, digests, strict=True):
            if digest not in self.carried.values():
                fresh.append(digest)
            self.carried[block], self.parents[digest] = digest, parent
            parent = digest
        if fresh:
            self.events.append(("stored", self.parents[fresh[0]], tuple(fresh)))

    def probe(self, digests: list[bytes]) -> Hit:
        held = {digest for block, digest in self.carried.items() if self.holders[block]}
        return Hit(leading(digests, set(self.carried.values())), leading(digests, held))

    def retire_top(self) -> tuple[int, int | None] | None:
        top, target = self.size - 1, None
        if self.holders[top]:
            free = self.take(1)
            if free is None:
                return None
            target = free[0]
            self.holders[target] = self.holders.pop(top)
            if top in self.carried:
                self.carried[target] = self.carried.pop(top)
        elif top in self.cached:
            ending = {self.carried[top]} if list(self.carried.values()).count(self.carried[top]) == 1 else set()
            while more := {one for one in self.carried.values() if self.parents[one] in ending} - ending:
                ending |= more
            self.evict([block for block in self.cached if block == top or self.carried[block] in ending])
        self.size -= 1
        return top, target


def leading(digests: list[bytes], known: set[bytes]) -> int:
    return next((place for place, digest in enumerate(digests) if digest not in known), len(digests))


class PoolMachine(RuleBasedStateMachine):
    """Tables come, are computed step by step and end, several in one call; the pool shrinks and grows."""

    keep = True

    def __init__(self) -> None:
        super().__init__()
        self.cache = Cache(8, BLOCK, keep=self.keep, events=True, max_size=10)
        self.pool = self.cache.pool
        self.naive = NaivePool(8, self.keep)
        self.told: set[bytes] = set()

    @property
    def tables(self) -> list[Table]:
        return self.cache.tables

    @rule(tokens=prompts, use_hits=st.booleans())
    def open(self, tokens, use_hits):
        digests = self.cache.digests(tokens)
        hits = self.naive.probe(digests[: (len(tokens) - 1) // BLOCK]).blocks if use_hits else 0
        found = self.pool.find(digests[:hits]).tolist()
        self.agrees_on(found, digests)
        table = self.cache.open(tokens, use_hits=use_hits)
        self.naive.hold(found)
        fresh = self.naive.take(-(-len(tokens) // BLOCK) - hits)
        if fresh is None:
            assert table is None
            self.naive.release(found[::-1])
        else:
            assert table.blocks.tolist() == found + fresh

    def agrees_on(self, found: list[int], digests: list[bytes]) -> None:
        """The blocks carry the digests, and one that is held was preferred."""
        held = {self.naive.carried[block] for block in self.naive.carried if self.naive.holders[block]}
        for block, digest in zip(found, digests, strict=False):
            assert self.naive.carried[block] == digest
            assert self.naive.holders[block] > 0 or digest not in held

    @precondition(lambda self: self.tables)
    @rule(data=st.data())
    def compute(self, data):
        """Some more blocks of a table are full; perhaps none."""
        table = data.draw(st.sampled_from(self.tables))
        upto = data.draw(st.integers(table.published, len(table.digests)))
        first, parent = table.published, ([ROOT] + table.digests)[table.published]
        assert self.cache.publish(table, upto) == upto - first
        self.naive.publish(table.blocks[first:upto].tolist(), table.digests[first:upto], parent)

    @precondition(lambda self: self.tables)
    @rule(data=st.data())
    def end(self, data):
        ending = data.draw(st.lists(st.sampled_from(self.tables), unique=True))
        self.naive.release([block for table in ending for block in table.blocks[::-1].tolist()])
        self.cache.end(*ending)

    @precondition(lambda self: self.pool.size)
    @rule()
    def retire(self):
        retired = self.naive.retire_top()
        assert self.pool.retire_top() == retired
        if retired and retired[1] is not None:
            for table in self.tables:
                table.blocks[table.blocks == retired[0]] = retired[1]

    @rule(count=st.integers(1, 3))
    def extend(self, count):
        grown = min(count, 10 - self.naive.size)
        assert self.pool.extend(count) == grown
        self.naive.size += grown

    @precondition(lambda self: not self.tables)
    @rule()
    def clear(self):
        self.pool.clear()
        self.naive.carried.clear()
        self.naive.cached.clear()
        self.naive.events.append(("cleared",))

    @rule(tokens=prompts)
    def probe(self, tokens):
        digests = self.cache.digests(tokens)
        assert self.pool.probe(digests) == self.naive.probe(digests)

    @invariant()
    def equal_books(self):
        self.cache.check()
        assert self.pool.free == len(self.naive.vacant()) + len(self.naive.cached)
        assert [self.pool.digest(block) for block in range(10)] == list(map(self.naive.carried.get, range(10)))
        assert self.pool.index_size == len(set(self.naive.carried.values()))
        assert self.pool.holders.tolist() == [self.naive.holders[block] for block in range(10)]
        digests = list(dict.fromkeys(self.naive.carried.values()))
        self.agrees_on(self.pool.find(digests).tolist(), digests)

    @invariant()
    def closed_under_prefixes(self):
        """A digest is here only with its parent, and in use only with it."""
        carried = self.naive.carried
        held = {digest for block, digest in carried.items() if self.naive.holders[block]}
        for part in (set(carried.values()), held):
            assert {self.naive.parents[digest] for digest in part} <= part | {ROOT}

    @invariant()
    def a_reader_knows_the_index(self):
        """The events are those of the naive pool, and who applies them has the index, parents first."""
        events = told(self.pool)
        assert [self.plain(event) for event in events] == self.naive.events
        self.naive.events.clear()
        for event in events:
            self.read(event)
        assert self.told == set(self.naive.carried.values())

    def plain(self, event) -> tuple:
        match event:
            case Stored(digests, parent, tokens, block_size):
                assert block_size == BLOCK
                assert len(tokens) == 4 * BLOCK * len(digests)
                return "stored", parent or ROOT, digests
            case Removed(digests):
                return "removed", digests
        return ("cleared",)

    def read(self, event) -> None:
        match event:
            case Stored(digests, parent):
                assert parent is None or parent in self.told
                assert not self.told & set(digests)
                self.told |= set(digests)
            case Removed(digests):
                for digest in digests:
                    self.told.remove(digest)
                    assert digest not in {self.naive.parents[child] for child in self.told}
            case Cleared():
                self.told.clear()


class PoolWithoutCache(PoolMachine):
    keep = False


TestPool = PoolMachine.TestCase
TestPool.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestPoolWithoutCache = PoolWithoutCache.TestCase
TestPoolWithoutCache.settings = settings(max_examples=30, stateful_step_count=40, deadline=None)


class QueueMachine(RuleBasedStateMachine):
    """The queue of cached blocks against a list."""

    def __init__(self) -> None:
        super().__init__()
        self.queue, self.list = LruQueue(6), []

    @rule(data=st.data())
    def append(self, data):
        outside = [block for block in range(6) if block not in self.list]
        new = data.draw(st.lists(st.sampled_from(outside), unique=True) if outside else st.just([]))
        self.queue.append(np.array(new, np.intp))
        self.list += new

    @rule(data=st.data())
    def remove(self, data):
        gone = data.draw(st.lists(st.sampled_from(self.list), unique=True) if self.list else st.just([]))
        self.queue.remove(np.array(gone, np.intp))
        self.list = [block for block in self.list if block not in gone]

    @rule(data=st.data())
    def take(self, data):
        count = data.draw(st.integers(0, len(self.list)))
        assert self.queue.take(count).tolist() == self.list[:count]
        del self.list[:count]

    @invariant()
    def same_order(self):
        self.queue.check()
        assert self.queue.in_order().tolist() == self.list
        assert self.queue.count == len(self.list)


TestQueue = QueueMachine.TestCase
TestQueue.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
