"""A block pool and its users: tables of whole prompts, made and ended the way the scheduler does it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fourstroke.ipc.block_hash import ROOT, Keys, block_keys, chain
from fourstroke.ipc.event_columns import events_of
from fourstroke.ipc.events import KvEvent
from fourstroke.ipc.messages import CacheKeys, Image
from fourstroke.ipc.plan import Column
from fourstroke.procs.scheduler.cache.blocks import BlockPool, blocks_for
from fourstroke.procs.scheduler.cache.residency import Chains, Contents

NO_BLOCKS = np.zeros(0, np.int32)
NO_KEYS = CacheKeys()


@dataclass(eq=False)
class Table:
    """A prompt's block table; its first `published` blocks carry `digests`."""

    tokens: Column
    keys: CacheKeys
    images: Sequence[Image]
    digests: list[bytes]
    blocks: Column
    published: int


class Cache:
    """A pool with blocks of `block` tokens, and the tables that are open."""

    def __init__(self, size: int, block: int = 4, **options) -> None:
        self.pool = BlockPool(size, **options)
        self.block = block
        self.tables: list[Table] = []

    def digests(self, tokens: Sequence[int], keys: CacheKeys = NO_KEYS, images: Sequence[Image] = ()) -> list[bytes]:
        packed = chain(np.array(tokens, np.int32), self.block, keys, images)
        return [packed[at : at + 32] for at in range(0, len(packed), 32)]

    def hits(self, tokens: Sequence[int], **keys) -> int:
        """How many blocks of a prompt a new request would get; never the one with its last token."""
        return self.pool.probe(self.digests(tokens, **keys)[: (len(tokens) - 1) // self.block]).blocks

    def open(self, tokens: Sequence[int], *, use_hits=True, keys=NO_KEYS, images=()) -> Table | None:
        """A table for a prompt, with the hits that it gets, nothing published; None if the pool has too little."""
        digests = self.digests(tokens, keys, images)
        hits = self.hits(tokens, keys=keys, images=images) if use_hits else 0
        found = self.pool.find(digests[:hits])
        self.pool.hold(found)
        fresh = self.pool.take(blocks_for(len(tokens), self.block) - hits)
        if fresh is None:
            self.pool.release(found[::-1])
            return None
        blocks = np.concatenate((found, fresh))
        table = Table(np.array(tokens, np.int32), keys, images, digests, blocks, hits)
        self.tables.append(table)
        return table

    def publish(self, table: Table, upto: int | None = None) -> int:
        """Publish the blocks of a table that are not, or those before block `upto`."""
        first, last = table.published, len(table.digests) if upto is None else upto
        parent = table.digests[first - 1] if first else ROOT
        keys = [block_keys(table.keys, table.images, index, self.block) for index in range(first, last)]
        tokens = table.tokens[first * self.block : last * self.block].reshape(-1, self.block)
        count = self.pool.publish(one_run(table.blocks[first:last], table.digests[first:last], parent, tokens, keys))
        table.published = last
        return count

    def admit(self, tokens: Sequence[int], **options) -> Table:
        """A table whose full blocks were all computed and published."""
        table = self.open(tokens, **options)
        assert table is not None
        self.publish(table)
        return table

    def end(self, *tables: Table) -> None:
        """These tables end in one call."""
        self.pool.release(np.concatenate([table.blocks[::-1] for table in tables] or [NO_BLOCKS]))
        for table in tables:
            self.tables.remove(table)

    def run(self, tokens: Sequence[int], **options) -> None:
        """A request that comes, is computed and ends."""
        self.end(self.admit(tokens, **options))

    def held(self) -> Column:
        """All block ids of all tables, with repetition."""
        return np.concatenate([table.blocks for table in self.tables] or [NO_BLOCKS])

    def check(self) -> None:
        self.pool.check(self.held())


def one_run(
    blocks: Column, digests: Sequence[bytes], parent: bytes, tokens: np.ndarray, keys: Sequence[Keys | None] = (None,)
) -> Chains:
    """One run of blocks, none if it is empty; `tokens` are [blocks, block size]."""
    some = np.array([len(blocks)] if len(blocks) else [], np.int64)
    of_blocks = {place: of_block for place, of_block in enumerate(keys) if of_block}
    return Chains(blocks, digests, some, [parent][: len(some)], Contents(tokens, of_blocks))


def told(pool: BlockPool, root: bytes = ROOT) -> list[KvEvent]:
    """What the world is told of a pool since the last time, as events; nothing if it has no bulletin."""
    changes = pool.bulletin.take() if pool.bulletin else []
    return [event for change in changes for event in events_of(change, root)]


def column(*ids: int) -> np.ndarray:
    return np.array(ids, np.int32)


def taken(pool: BlockPool, count: int) -> list[int] | None:
    ids = pool.take(count)
    return None if ids is None else ids.tolist()


def cached_pool(*released: int, size: int | None = None, **options) -> Cache:
    """A pool whose blocks `released` are cached, released in this order, each a chain of its own."""
    cache = Cache(size or len(released), **options)
    tables = {}
    for block in range(max(released) + 1):
        tables[block] = cache.admit([block] * 4)
        assert tables[block].blocks.tolist() == [block]
    cache.end(*(tables[block] for block in released))
    return cache
