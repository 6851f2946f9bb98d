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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import compress, repeat
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ....ipc.block_hash import Keys
from ....ipc.plan import Column
from ....ipc.ring import Tokens
from .free_blocks import Flags, Ids

NO_ENTRY = -1

_ONE = np.intp(1)  # ufunc.at is 25 times as fast with a number of the array's type as with one of Python's


@dataclass(frozen=True, slots=True)
class Hit:
    """How many of the leading digests of a chain are in the cache, and how many of these have a block in use."""

    blocks: int
    held: int


class Contents(NamedTuple):
    """What others are told of blocks: their tokens, [blocks, block_size], and the keys of those that have some."""

    tokens: Tokens
    keys: Mapping[int, Keys]

    def only(self, blocks: Sequence[int]) -> Contents:
        """Those of these blocks alone."""
        keys = {place: self.keys[block] for place, block in enumerate(blocks) if block in self.keys}
        return Contents(self.tokens[blocks], keys)


class Chains(NamedTuple):
    """Full blocks of some tables, all held, and their digests: of each table a run of blocks, one run after the other.

    Run i has counts[i] blocks, one or more; parents[i] is the digest of the block before it, or the root.
    """

    ids: Column
    digests: Sequence[bytes]
    counts: npt.NDArray[np.int64]
    parents: Sequence[bytes]
    contents: Contents | None = None

    @property
    def begins(self) -> npt.NDArray[np.int64]:
        """Where each run begins."""
        begins: npt.NDArray[np.int64] = np.cumsum(self.counts) - self.counts
        return begins

    def only(self, runs: Flags) -> Chains:
        """These runs alone."""
        blocks = np.flatnonzero(np.repeat(runs, self.counts)).tolist()
        contents = self.contents and self.contents.only(blocks)
        digests, parents = [self.digests[at] for at in blocks], [*compress(self.parents, runs)]
        return Chains(self.ids[blocks], digests, self.counts[runs], parents, contents)


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
        self._digest: npt.NDArray[np.object_] = np.full(capacity, b"", np.object_)
        self._parent, self._carrier, self._carriers, self._held, self._scratch = np.zeros((5, capacity), np.intp)

    def __len__(self) -> int:
        return len(self._entry_of)

    def digest(self, block: int) -> bytes | None:
        """The digest that a block carries."""
        entry = int(self.entry[block])
        digest: bytes | None = None if entry == NO_ENTRY else self._digest[entry]
        return digest

    # By entry, for those who tell of it

    def by_birth(self) -> list[int]:
        """All entries, parents before children. 160,000 take 0.5 ms."""
        return list(self._entry_of.values())

    def digests_of(self, entries: Ids) -> list[bytes]:
        digests: list[bytes] = self._digest[entries].tolist()
        return digests

    def parents_of(self, entries: Ids) -> list[bytes]:
        """The digests of their parents, or the root."""
        parents = self._parent[entries].tolist()
        return [self._root if parent == NO_ENTRY else self._digest[parent] for parent in parents]

    def parent_entries(self, entries: Ids) -> Ids:
        """The entries of their parents, or NO_ENTRY."""
        parents: Ids = self._parent[entries]
        return parents

    def parent_entry(self, entry: int) -> int:
        return int(self._parent[entry])

    def rooted(self, chains: Chains) -> Chains:
        """The runs of which the parent is here, nearly always all."""
        unknown = set(chains.parents).difference(self._entry_of, (self._root,))
        return chains.only(np.array([one not in unknown for one in chains.parents])) if unknown else chains

    def publish(self, chains: Chains) -> tuple[int, Flags]:
        """These blocks, of runs of which the parent is here, carry their digests from now on.

        Many runs of one block each are usual: everything is done once for all. Returns how many blocks have got a
        digest, and for each block whether it is the first that carries its digest. If so, the rest of its run is, too.
        """
        ids, digests = chains.ids, chains.digests
        carries = self.entry[ids] == NO_ENTRY
        entries, fresh = self._entries_for(digests, self.entry[ids], carries)
        self._digest[entries] = digests
        self._parent[entries] = self._above(chains, entries)
        ids, of_ids = ids[carries], entries[carries]
        self.entry[ids], self._carrier[of_ids] = of_ids, ids
        np.add.at(self._carriers, of_ids, _ONE)
        np.add.at(self._held, of_ids, _ONE)
        return len(ids), fresh

    def _entries_for(self, digests: Sequence[bytes], entries: Ids, lacking: Flags) -> tuple[Ids, Flags]:
        """The entries of digests, and which are new, given those that their blocks have, or lack.

        Each block that lacks one has an unused entry ready, which its digest takes if it is not here.
        """
        count = int(np.count_nonzero(lacking))
        ready = entries.copy()
        ready[lacking] = self._unused[len(self._unused) - count :]
        found = np.fromiter(map(self._entry_of.setdefault, digests, ready.tolist()), np.intp, len(digests))
        fresh = lacking & (found == ready)
        del self._unused[len(self._unused) - count :]
        self._unused.extend(ready[lacking & ~fresh].tolist())
        return found, fresh

    def _above(self, chains: Chains, entries: Ids) -> Ids:
        """The entry before each: a digest has one parent, in whichever run it is."""
        above = np.empty_like(entries)
        above[1:] = entries[:-1]
        parents = map(self._entry_of.get, chains.parents, repeat(NO_ENTRY))
        above[chains.begins] = np.fromiter(parents, np.intp, len(chains.parents))
        return above

    def hold(self, ids: Ids) -> None:
        """Published blocks that nobody held are held now."""
        np.add.at(self._held, self.entry[ids], _ONE)

    def let_go(self, ids: Ids) -> None:
        """Published blocks are not held any more."""
        np.subtract.at(self._held, self.entry[ids], _ONE)

    def drop(self, ids: Ids) -> tuple[Ids, list[bytes]]:
        """Published blocks that nobody holds carry no digest any more.

        Returns the digests that no block carries now, in the order in which their last blocks stand in `ids`, and
        before them the entries that they had.
        """
        entries = self.entry[ids]
        self.entry[ids] = NO_ENTRY
        np.subtract.at(self._carriers, entries, _ONE)
        ended = last_occurrences(entries[self._carriers[entries] == 0], self._scratch)
        digests: list[bytes] = self._digest[ended].tolist()
        for digest in digests:
            del self._entry_of[digest]
        self._digest[ended] = b""
        self._unused.extend(ended.tolist())
        return ended, digests

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
