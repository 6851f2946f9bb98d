"""The pool of KV cache blocks: which are held, cached or vacant, and what is told of the cached ones.

    vacant  nobody holds it, it carries no digest; given out first, lowest id first
    held    in one or more block tables, or reserved; perhaps published, that is, it carries a digest
    cached  published and nobody holds it; given out when nothing is vacant, least recently used first, and
            then it loses its digest: it is evicted

The pool knows no request and no executor. Its callers keep two rules (residency.py says why): who holds blocks of
a chain holds them from the chain's first block on, and releases them in one call, deepest first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ....ipc.block_hash import ROOT
from ....ipc.plan import Column
from .bulletin import Bulletin
from .free_blocks import Ids, LruQueue, VacantBlocks
from .residency import NO_ENTRY, Chains, Hit, Residency, last_occurrences

_ONE = np.int32(1)  # of the type of `holders`: see residency.py


def blocks_for(tokens: int, block_size: int) -> int:
    """How many blocks hold so many tokens."""
    return -(-tokens // block_size)


class BlockPool:
    """Blocks 0..size-1; the pool can grow to `max_size` blocks (default: not at all).

    keep      whether a published block stays cached when nobody holds it any more; else it is vacant at once
    events    whether there is a bulletin, from which others learn of changes; if not, none is ever described
    on_evict  is called with the ids of blocks that have lost their digests
    root      the digest before the first of every chain

    `holders` counts for each block in how many tables it is; read it, never write it.
    """

    def __init__(
        self,
        size: int,
        *,
        keep: bool = True,
        events: bool = False,
        max_size: int | None = None,
        on_evict: Callable[[list[int]], None] | None = None,
        root: bytes = ROOT,
    ) -> None:
        self.size = size
        self.max_size = size if max_size is None else max_size
        if size > self.max_size:
            raise ValueError(f"a pool of {size} blocks that has at most {self.max_size}")
        self.holders: Column = np.zeros(self.max_size, np.int32)
        self.keep, self._on_evict = keep, on_evict
        self._vacant, self._cached = VacantBlocks(self.max_size), LruQueue(self.max_size)
        self._vacant.add(np.arange(size))
        self._residency = Residency(self.max_size, root, self.holders)
        self._reserved: dict[int, Column] = {}
        self.bulletin = Bulletin(self._residency, self.max_size) if events else None
        self._scratch: Ids = np.zeros(self.max_size, np.intp)

    @property
    def free(self) -> int:
        """Blocks that take() can give."""
        return self._vacant.count + self._cached.count

    def take(self, count: int) -> Column | None:
        """The ids of `count` blocks, held once each from now on; None and no change if there are not so many."""
        if count > self.free:
            return None
        ids = self._vacant.take(min(count, self._vacant.count))
        if len(ids) < count:
            evicted = self._cached.take(count - len(ids))
            self._forget(evicted)
            ids = np.concatenate((ids, evicted))
        self.holders[ids] = 1
        return ids.astype(np.int32)

    def hold(self, ids: Column) -> None:
        """One more holder for each of these held or cached blocks."""
        places = ids.astype(np.intp)
        fresh = last_occurrences(places[self.holders[places] == 0], self._scratch)
        np.add.at(self.holders, places, _ONE)
        self._cached.remove(fresh)
        self._residency.hold(fresh)

    def release(self, ids: Column) -> None:
        """One holder less for each id, in this order; an id may occur several times.

        The published blocks that nobody holds any more become cached, in the order of their last holders' release.
        """
        freed = self._unheld(ids.astype(np.intp))
        published = self._residency.entry[freed] != NO_ENTRY
        self._vacant.add(freed[~published])
        self._let_go(freed[published])

    def _unheld(self, places: Ids) -> Ids:
        """Count one holder less for each; those that nobody holds any more, in the order of their last release."""
        before = self.holders[places]
        if before.max(initial=1) == 1:  # the usual case: nothing is shared, so that no id occurs twice
            self.holders[places] = 0
            return places
        np.subtract.at(self.holders, places, _ONE)
        ended = self.holders[places] == 0
        freed = places[ended]
        return freed if before[ended].max(initial=1) == 1 else last_occurrences(freed, self._scratch)

    def _let_go(self, ids: Ids) -> None:
        self._residency.let_go(ids)
        if self.keep:
            self._cached.append(ids)
        else:
            self._forget(ids)
            self._vacant.add(ids)

    def _forget(self, ids: Ids) -> None:
        """Published blocks that nobody holds lose their digests."""
        entries, digests = self._residency.drop(ids)
        if self._on_evict and len(ids):
            self._on_evict(ids.tolist())
        if self.bulletin:
            self.bulletin.removed(entries, digests)

    # The prefix cache

    def publish(self, chains: Chains) -> int:
        """These blocks carry their digests from now on; of a run whose parent is not in the cache, none does.

        A block that carries its digest already stays as it is; no block is in two runs. Returns how many blocks have
        got a digest.
        """
        chains = self._residency.rooted(chains)
        blocks, fresh = self._residency.publish(chains)
        if self.bulletin and chains.contents:
            self.bulletin.stored(chains, chains.contents, self._residency.entry[chains.ids], fresh)
        return blocks

    def probe(self, digests: Sequence[bytes], most: int | None = None) -> Hit:
        """How many of a chain's first `most` digests are in the cache, and of how many of these a block is held.

        Costs the logarithm of the chain's length, whatever happened before.
        """
        return self._residency.probe(digests, len(digests) if most is None else min(most, len(digests)))

    def find(self, digests: Sequence[bytes]) -> Column:
        """A block for each of these digests, all of which are in the cache: a held one, if there is one."""
        return self._residency.find(digests).astype(np.int32)

    def digest(self, block: int) -> bytes | None:
        """The digest that a block carries."""
        return self._residency.digest(block)

    @property
    def index_size(self) -> int:
        """How many digests are in the cache."""
        return len(self._residency)

    def clear(self) -> None:
        """Forget all digests: cached blocks become vacant. Nobody may hold a published block now."""
        ids = self._cached.take(self._cached.count)
        self._residency.clear()
        self._vacant.add(ids)
        if self._on_evict and len(ids):
            self._on_evict(ids.tolist())
        if self.bulletin:
            self.bulletin.cleared()

    # Memory that comes and goes

    def retire_top(self) -> tuple[int, int | None] | None:
        """Make the pool smaller by its last block.

        Returns its id and, if it was held, the id of the block that has taken its place: the caller copies its KV and
        changes the tables. A cached block is evicted, with the blocks behind it in their chains. None, and no
        change, if there is no block, if the last one is reserved, or held with no free block to move to.
        """
        top, target = self.size - 1, None
        if top < 0 or any(top in ids for ids in self._reserved.values()):
            return None
        if self.holders[top]:
            free = self.take(1)
            if free is None:
                return None
            target = int(free[0])
            self._move(top, target)
        elif not self._vacant.flags[top]:
            self._evict(self._residency.with_descendants(top, self._cached.in_order()))
            self._vacant.remove(top)
        else:
            self._vacant.remove(top)
        self.size -= 1
        return top, target

    def _move(self, block: int, to: int) -> None:
        self.holders[to], self.holders[block] = self.holders[block], 0
        self._residency.move(block, to)

    def _evict(self, ids: Ids) -> None:
        """Cached blocks become vacant."""
        self._cached.remove(ids)
        self._forget(ids)
        self._vacant.add(ids)

    def extend(self, count: int) -> int:
        """Make the pool larger by up to `count` vacant blocks; returns by how many."""
        grown = min(count, self.max_size - self.size)
        self._vacant.add(np.arange(self.size, self.size + grown))
        self.size += grown
        return grown

    def reserve(self, owner: int, count: int) -> Column | None:
        """Take `count` blocks for an owner who has none; they are in no table. None if there are not so many."""
        if owner in self._reserved:
            raise ValueError(f"owner {owner} has reserved blocks already")
        ids = self.take(count)
        if ids is not None:
            self._reserved[owner] = ids
        return ids

    def release_reserved(self, owner: int, ids: Column) -> None:
        """Give back all that an owner has reserved. Raises ValueError if `ids` are not exactly these."""
        reserved = self._reserved.get(owner)
        if reserved is None or not np.array_equal(np.sort(reserved), np.sort(ids)):
            raise ValueError(f"owner {owner} has not reserved just these {len(ids)} blocks")
        del self._reserved[owner]
        self.release(reserved)

    # Books

    def check_counts(self) -> None:
        """Compare the number of free blocks with that of the others; raises AssertionError."""
        assert self.free + np.count_nonzero(self.holders) == self.size, "blocks were lost"

    def check(self, held: Column) -> None:
        """Compare the books with the blocks of all tables, each as often as it occurs; raises AssertionError."""
        held = np.concatenate([held, *self._reserved.values()])
        assert np.array_equal(np.bincount(held, minlength=self.max_size), self.holders), "holders were miscounted"
        cached, published = np.zeros(self.max_size, np.bool_), self._residency.entry != NO_ENTRY
        cached[self._cached.in_order()] = True
        in_use = self.holders > 0
        assert np.array_equal(cached, published & ~in_use), "a block is cached and held, or not published"
        vacant = self._vacant.flags
        inside = np.arange(self.max_size) < self.size
        assert np.array_equal(vacant, inside & ~in_use & ~cached), "blocks were lost"
        assert not (in_use | published)[self.size :].any(), "a block outside of the pool is in use"
        self._vacant.check()
        self._cached.check()
        self._residency.check()
