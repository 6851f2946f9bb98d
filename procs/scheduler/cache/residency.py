"""Which digests are in the cache, and which blocks carry them.

A digest that at least one block carries has an entry. Blocks have an entry or -1; entries count the blocks that carry
them, and those of these that somebody holds. Digests are compared whole: what the world is told of them is shorter.

The index is closed under prefixes. Whoever holds blocks of a chain holds them from its first block on, and releases
them deepest first; a digest is published only behind a digest that is here. Therefore

1.  while somebody holds a block, somebody holds one that carries the parent's digest: the one before it in the
    same table, since only a published block's successor is published, and a table that begins with a hit holds
    blocks of all digests of the hit;
2.  a cached block was released right before the block in front of it, so that some block with the parent's digest is
    held or was used later. This stays true when either is used again, because its whole prefix is used with it;
3.  blocks leave the cache in the order of their last use, so when the last block with a digest leaves, all with
    its children's digests have left.

So of the digests of a chain a first part is here, and of this a first part is held: bisection finds both.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ....ipc.plan import Column
from ....ipc.ring import Tokens
from ...block_hash import Keys
from .free_blocks import Ids

NO_ENTRY = -1

_ONE = np.intp(1)  # ufunc.at is 25 times as fast with a number of the array's type as with one of Python's


@dataclass(frozen=True, slots=True)
class Hit:
    """How many of the leading digests of a chain are in the cache, and how many of these have a block in use."""

    blocks: int
    held: int


class Chain(NamedTuple):
    """Full blocks, held and one behind the other in one table, and their digests.

    `parent` is the digest of the block before them, or the root. `tokens` and `keys` are those of the blocks, and tell
    others what they are; without keys no block has any.
    """

    ids: Column
    digests: Sequence[bytes]
    parent: bytes
    tokens: Tokens
    keys: Sequence[Keys | None] | None = None


@dataclass(frozen=True, slots=True)
class Published:
    """How many blocks carry a digest now that had none, and of each chain how many digests, its last ones, nobody
    carried before.
    """

    blocks: int
    first_copies: list[int]


def last_occurrences(values: Ids, scratch: Ids) -> Ids:
    """The distinct values, in the order in which each stands for the last time. `scratch` is indexed by value."""
    order = np.arange(len(values))
    scratch[values] = order
    last: Ids = values[scratch[values] == order]
    return last


class Residency:
    """The index of a pool of `capacity` blocks. `holders` has the pool's count for each block; read, never written."""

    def __init__(self, capacity: int, root: bytes, holders: Column) -> None:
        self.entry: Ids = np.full(capacity, NO_ENTRY, np.intp)
        self._root = root
        self._holders = holders
        self._entry_of: dict[bytes, int] = {}
        self._unused = list(range(capacity))
        # By entry. `_carrier` is a block that carries it, or was one: a guess that is checked.
        self._digest = [b""] * capacity
        self._parent, self._carrier, self._carriers, self._held, self._scratch = np.zeros((5, capacity), np.intp)

    def __len__(self) -> int:
        return len(self._entry_of)

    def digest(self, block: int) -> bytes | None:
        """The digest that a block carries."""
        entry = int(self.entry[block])
        return None if entry == NO_ENTRY else self._digest[entry]

    def publish(self, chains: Sequence[Chain]) -> Published:
        """The blocks of each chain whose parent is here carry its digests from now on. No block is in two chains.

        Many chains of one block each are usual: arrays are written once for all.
        """
        entries: list[int] = []
        first_copies = []
        for chain in chains:
            known = len(self._entry_of)
            entries += self._entries(chain)
            first_copies.append(len(self._entry_of) - known)
        ids, of_ids = np.concatenate([chain.ids for chain in chains]), np.array(entries, np.intp)
        carries = (self.entry[ids] == NO_ENTRY) & (of_ids != NO_ENTRY)
        ids, of_ids = ids[carries], of_ids[carries]
        self.entry[ids], self._carrier[of_ids] = of_ids, ids
        np.add.at(self._carriers, of_ids, _ONE)
        np.add.at(self._held, of_ids, _ONE)
        return Published(len(ids), first_copies)

    def _entries(self, chain: Chain) -> list[int]:
        """The entries of a chain's digests, new ones where there are none; NO_ENTRY if the parent is not here."""
        entry_of = self._entry_of
        above = NO_ENTRY if chain.parent == self._root else entry_of.get(chain.parent)
        if above is None:
            return [NO_ENTRY] * len(chain.digests)
        entries = []
        for digest in chain.digests:
            entry = entry_of.get(digest)
            if entry is None:
                entry = self._unused.pop()
                entry_of[digest], self._digest[entry], self._parent[entry] = entry, digest, above
            entries.append(entry)
            above = entry
        return entries

    def hold(self, ids: Ids) -> None:
        """Published blocks that nobody held are held now."""
        np.add.at(self._held, self.entry[ids], _ONE)

    def let_go(self, ids: Ids) -> None:
        """Published blocks are not held any more."""
        np.subtract.at(self._held, self.entry[ids], _ONE)

    def drop(self, ids: Ids) -> tuple[bytes, ...]:
        """Published blocks that nobody holds carry no digest any more.

        Returns the digests that no block carries now, in the order in which their last blocks stand in `ids`.
        """
        entries = self.entry[ids]
        self.entry[ids] = NO_ENTRY
        np.subtract.at(self._carriers, entries, _ONE)
        ended = last_occurrences(entries[self._carriers[entries] == 0], self._scratch).tolist()
        digests = [self._digest[entry] for entry in ended]
        for entry in ended:
            del self._entry_of[self._digest[entry]]
            self._digest[entry] = b""
        self._unused.extend(ended)
        return tuple(digests)

    def clear(self) -> None:
        """No block carries a digest any more; nobody may hold one that does."""
        assert not self._held.any(), "the cache is cleared while published blocks are held"
        self.drop(np.flatnonzero(self.entry != NO_ENTRY))

    def probe(self, digests: Sequence[bytes], most: int) -> Hit:
        """How much of a chain's first `most` digests is here. 27 looks for 8,192 digests."""
        of = self._entry_of
        blocks = bisect_left(digests, True, 0, most, key=lambda digest: digest not in of)
        held = bisect_left(digests, True, 0, blocks, key=lambda digest: self._held[of[digest]] == 0)
        return Hit(blocks, held)

    def find(self, digests: Sequence[bytes]) -> Ids:
        """A block for each digest, which must be here; one that is held, if there is one."""
        entries = np.fromiter(map(self._entry_of.__getitem__, digests), np.intp, len(digests))
        blocks = self._carrier[entries]
        in_use = (self._held[entries] == 0) | (self._holders[blocks] > 0)
        if not (in_use & (self.entry[blocks] == entries)).all():
            self._guess_again()
        found: Ids = self._carrier[entries]
        return found

    def _guess_again(self) -> None:
        """For each entry a block that carries it, a held one if there is one. Only needed where there are copies."""
        for ids in np.flatnonzero(self._holders == 0), np.flatnonzero(self._holders):
            ids = ids[self.entry[ids] != NO_ENTRY]
            self._carrier[self.entry[ids]] = ids

    def move(self, block: int, to: int) -> None:
        """A block that carries nothing carries what `block` carried, if anything."""
        self.entry[to], self.entry[block] = self.entry[block], NO_ENTRY

    def with_descendants(self, block: int, cached: Ids) -> Ids:
        """Which of the `cached` blocks, least recently used first, must be dropped when `block`, one of them, is.

        If no other block has its digest, these are the blocks behind it in all chains. They were used before it.
        """
        place = int(np.flatnonzero(cached == block)[0])
        entry = int(self.entry[block])
        behind = self._behind(entry, cached[:place]) if self._carriers[entry] == 1 else []
        found: Ids = cached[[*behind, place]]
        return found

    def _behind(self, entry: int, earlier: Ids) -> list[int]:
        """The places of the blocks whose chains go through an entry: a child was used before its parent."""
        entries = self.entry[earlier]
        pairs = zip(entries.tolist(), self._parent[entries].tolist(), strict=True)
        ending, places = {entry}, []
        for place, (child, parent) in reversed(list(enumerate(pairs))):
            if parent in ending:
                ending.add(child)
                places.append(place)
        return places[::-1]

    def check(self) -> None:
        """Compare the books; raises AssertionError."""
        carrying = np.flatnonzero(self.entry != NO_ENTRY)
        entries, held = np.fromiter(self._entry_of.values(), np.intp, len(self)), self._holders > 0
        size = len(self.entry)
        assert (np.bincount(self.entry[carrying], minlength=size) == self._carriers).all(), "copies were lost"
        in_use = carrying[held[carrying]]
        assert (np.bincount(self.entry[in_use], minlength=size) == self._held).all(), "copies in use were lost"
        assert np.array_equal(np.sort(entries), np.flatnonzero(self._carriers)), "a digest is here without a block"
        assert all(self._digest[entry] == digest for digest, entry in self._entry_of.items()), "digests were mixed up"
        assert len(self._unused) == size - len(self), "entries were lost"
        children = entries[self._parent[entries] != NO_ENTRY]
        parents = self._parent[children]
        assert (self._carriers[parents] > 0).all(), "a digest is here without its parent"
        assert (self._held[parents] >= (self._held[children] > 0)).all(), "a block is held without its parent"
