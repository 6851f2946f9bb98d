"""Who listens to the bulletin knows the cache: from the beginning, or from any moment on, while it goes on changing."""

from __future__ import annotations

import random

import pytest

from fourstroke.common.types import KvKind
from fourstroke.ipc.block_hash import ROOT
from fourstroke.ipc.event_columns import events_of
from fourstroke.ipc.events import Cleared, KvEvent, Removed, Stored
from fourstroke.ipc.messages import CacheKeys
from fourstroke.ipc.shadow import Shadow
from fourstroke.procs.scheduler.cache import bulletin as bulletin_module
from fourstroke.procs.scheduler.cache.bulletin import Bulletin

from .chains import NO_KEYS, Cache, told

SALTED = CacheKeys(salt="s")


def bulletin_of(cache: Cache) -> Bulletin:
    assert cache.pool.bulletin is not None
    return cache.pool.bulletin


def index_of(cache: Cache) -> set[bytes]:
    """The last 8 bytes of all digests in a pool."""
    return {digest[-8:] for digest in cache.pool._residency._entry_of}


class Reader:
    """Applies events, and takes offence at what a reader may take offence at."""

    def __init__(self) -> None:
        self.shadow = Shadow()

    @property
    def hashes(self) -> set[bytes]:
        return set(self.shadow.media.get("GPU", {}))

    def hear(self, event: KvEvent) -> None:
        known = self.shadow.media.get("GPU", {})
        match event:
            case Stored(digests, parent):
                assert parent is None or parent[-8:] in known, "a child before its parent"
                assert not any(digest[-8:] in known for digest in digests), "stored twice"
                assert len(set(digests)) == len(digests)
            case Removed(digests):
                gone = {digest[-8:] for digest in digests}
                assert gone <= known.keys(), "removed what was not there"
                assert all(block.parent not in gone or digest in gone for digest, block in known.items()), (
                    "a parent before its child"
                )
        self.shadow.apply(event)

    def catch_up(self, cache: Cache) -> None:
        """Hear everything that there is to hear."""
        for event in told(cache.pool):
            self.hear(event)
        while bulletin_of(cache).behind:
            for event in told(cache.pool):
                self.hear(event)


class QuickCache(Cache):
    """Hashes each prompt once: the crowd has few."""

    def __init__(self, size: int, block: int) -> None:
        super().__init__(size, block, events=True)
        self._hashed: dict[tuple, list[bytes]] = {}

    def digests(self, tokens, keys=NO_KEYS, images=()) -> list[bytes]:
        prompt = (*tokens, keys.salt)
        if prompt not in self._hashed:
            self._hashed[prompt] = super().digests(tokens, keys, images)
        return self._hashed[prompt]


class Crowd:
    """Random users of a pool that is too small for them: shared prefixes, copies, evictions, resets, salts."""

    def __init__(self, seed: int, blocks: int = 24) -> None:
        self.dice = random.Random(seed)
        self.cache = QuickCache(blocks, 2)

    def act(self) -> None:
        cache, dice = self.cache, self.dice
        roll = dice.random()
        if roll < 0.005 and not cache.tables:
            cache.pool.clear()
        elif roll < 0.45 and cache.tables:
            cache.end(*dice.sample(cache.tables, dice.randint(1, len(cache.tables))))
        else:
            start = dice.randrange(3)
            tokens = [start] * dice.randint(0, 6) + [dice.randrange(3) for _ in range(dice.randint(2, 8))]
            keys = SALTED if dice.random() < 0.2 else CacheKeys()
            table = cache.open(tokens, use_hits=dice.random() < 0.8, keys=keys)
            if table is not None:
                cache.publish(table, dice.randint(table.published, len(table.digests)))


def test_a_reader_equals_the_pool_after_any_operations():
    """10^5 random operations; after each batch of them, of any size, the reader has exactly what is cached."""
    crowd, reader = Crowd(1), Reader()
    cache, dice = crowd.cache, crowd.dice
    for _ in range(100_000):
        crowd.act()
        if dice.random() < 0.1:
            reader.catch_up(cache)
            assert reader.hashes == index_of(cache)
    cache.check()


@pytest.mark.parametrize("seed", range(10))
def test_a_reader_who_comes_late_or_loses_the_thread(seed, monkeypatch):
    """Everything is told again in small slices while the cache changes; nobody listens in between for a while."""
    monkeypatch.setattr(bulletin_module, "SLICE", 3)
    crowd, reader = Crowd(seed), Reader()
    cache, dice = crowd.cache, crowd.dice
    bulletin, listens, equal = bulletin_of(cache), True, 0
    for _ in range(4000):
        crowd.act()
        roll = dice.random()
        if roll < 0.02:
            bulletin.mute()
            listens = False
        elif roll < 0.06:
            bulletin.start_over()
            listens = True
        for event in told(cache.pool) if dice.random() < 0.6 else ():
            assert listens
            reader.hear(event)
        if listens and not bulletin.waits:
            assert reader.hashes == index_of(cache)
            equal += 1
    assert equal > 500
    bulletin.start_over()
    reader.catch_up(cache)
    assert reader.hashes == index_of(cache)


def test_everything_is_told_in_slices(monkeypatch):
    """So many digests at a time, Cleared first, parents first, with their tokens and keys."""
    monkeypatch.setattr(bulletin_module, "SLICE", 4)
    cache = Cache(40, events=True)
    cache.run(range(24), keys=SALTED)
    cache.run(range(100, 120))
    before = told(cache.pool)
    bulletin_of(cache).start_over()
    slices = []
    while bulletin_of(cache).waits:
        slices.append(told(cache.pool))
    assert [sum(len(event.digests) for event in part if isinstance(event, Stored)) for part in slices] == [4, 4, 3]
    assert slices[0][0] == Cleared()
    reader, original = Reader(), Reader()
    for event in (event for part in slices for event in part):
        reader.hear(event)
    for event in before:
        original.hear(event)
    assert reader.shadow.media == original.shadow.media


def test_nobody_listens():
    """Nothing is described, and whether something has happened is known."""
    cache = Cache(8, events=True)
    bulletin = bulletin_of(cache)
    bulletin.mute()
    assert not bulletin.missed
    cache.run(range(12))
    assert (bulletin.missed, bulletin.waits, bulletin.take()) == (True, False, [])
    bulletin.mute()
    cache.pool.clear()
    assert bulletin.missed


def test_many_runs_are_one_change():
    """What a step has stored is one message part, whatever the number of requests."""
    cache = Cache(8, events=True)
    tables = [cache.open([number] * 4) for number in range(3)]
    for table in tables:
        cache.publish(table)
    changes = bulletin_of(cache).take()
    assert [change.kind for change in changes] == [KvKind.STORED] * 3
    (event,) = events_of(changes[0], ROOT)
    assert event.tokens == bytes(16)
