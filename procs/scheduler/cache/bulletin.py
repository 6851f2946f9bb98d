"""What the world is told of the cache: each change once and in order, and all of it again when somebody new listens.

A digest is stored when its first block is published, and removed when its last one goes. To be able to tell
everything again, slice by slice while the cache goes on changing, the tokens and keys of each digest are kept, by its
entry in the index (residency.py). The order of birth has parents before children. Who listens knows a prefix of each
chain at any time: what is new is told at once if he knows its parent, and else in its turn.

The pool calls it; who hands changes over takes them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import compress

import numpy as np

from ....common.types import KvKind
from ....ipc.block_hash import Key, Keys
from ....ipc.messages import KvChange, KvKey
from ....ipc.ring import Tokens
from .free_blocks import Flags, Ids
from .residency import NO_ENTRY, Chains, Contents, Residency

SLICE = 1024
"""So many digests are told again with the changes of one step, at most: 0.6 ms."""

_NOBODY = -1


class Bulletin:
    """The changes of an index that have not been taken yet. It begins with a listener, who knows that nothing is there.

    `missed` tells whether anything has happened since `mute`.
    """

    def __init__(self, residency: Residency, capacity: int) -> None:
        self._residency = residency
        self._tokens: Tokens = np.zeros((capacity, 0), np.int32)
        self._keys: dict[int, Keys] = {}
        self._born = np.full(capacity, _NOBODY, np.int64)
        self._births = 0
        self._told: Flags = np.zeros(capacity, np.bool_)
        self._untold: deque[tuple[list[int], int]] = deque()  # entries born before the number beside them
        self._changes: list[KvChange] = []
        self._listened = True
        self.missed = False

    @property
    def behind(self) -> bool:
        """Whether there is more to tell than what has just happened."""
        return bool(self._untold)

    @property
    def changes(self) -> int:
        """How many changes have happened that were not taken."""
        return len(self._changes)

    @property
    def waits(self) -> bool:
        """Whether `take` has something to give."""
        return bool(self._changes or self._untold)

    def take(self) -> list[KvChange]:
        """What is to be told now, in order."""
        if self._untold:
            self._catch_up()
        changes, self._changes = self._changes, []
        return changes

    def mute(self) -> None:
        """Nobody listens: what was not taken is forgotten."""
        self._listened = self.missed = False
        self._changes.clear()
        self._untold.clear()

    def start_over(self) -> None:
        """Somebody listens who knows nothing: tell him that nothing is there, and then everything."""
        self._listened, self.missed = True, False
        self._changes = [KvChange(KvKind.CLEARED)]
        self._told[:] = False
        order = self._residency.by_birth()
        self._untold = deque((order[at : at + SLICE], self._births) for at in range(0, len(order), SLICE))

    # What happens to the index

    def stored(self, chains: Chains, contents: Contents, entries: Ids, fresh: Flags) -> None:
        """Blocks of some runs were published, in these entries. Those of `fresh` ones, the end of each run, are new."""
        if not fresh.any():
            return
        new = entries[fresh]
        self._keep(new, entries, contents, fresh)
        counts = np.add.reduceat(fresh.astype(np.int32), chains.begins)
        if not self._listened:
            self.missed = True
        elif self._untold:
            self._say_what_follows(new, counts[counts > 0])
        else:
            self._changes.append(self._as_stored(new, counts[counts > 0]))

    def removed(self, entries: Ids, digests: Sequence[bytes]) -> None:
        """No block carries these digests any more; their entries are free."""
        self._born[entries] = _NOBODY
        if self._keys:
            for entry in entries.tolist():
                self._keys.pop(entry, None)
        if not self._listened:
            self.missed |= bool(digests)
            return
        if self._untold:
            digests = list(compress(digests, self._told[entries]))
            self._told[entries] = False
        if digests:
            self._changes.append(KvChange(KvKind.REMOVED, b"".join(digests)))

    def cleared(self) -> None:
        """The index is empty."""
        self._born[:] = _NOBODY
        self._keys.clear()
        self._untold.clear()
        if self._listened:
            self._changes.append(KvChange(KvKind.CLEARED))
        else:
            self.missed = True

    def _keep(self, new: Ids, entries: Ids, contents: Contents, fresh: Flags) -> None:
        """Remember what the digests of new entries stand for."""
        if not self._tokens.shape[1]:
            self._tokens = np.zeros((len(self._born), contents.tokens.shape[1]), np.int32)
        self._tokens[new] = contents.tokens if len(new) == len(fresh) else contents.tokens[fresh]
        self._born[new] = np.arange(self._births, self._births + len(new))
        self._births += len(new)
        for place, keys in contents.keys.items():
            if fresh[place]:
                self._keys[int(entries[place])] = keys

    # How it is told

    def _as_stored(self, entries: Ids, counts: Ids) -> KvChange:
        """These entries, in runs of so many, as a change."""
        firsts = entries[np.cumsum(counts) - counts]
        return KvChange(
            KvKind.STORED,
            b"".join(self._residency.digests_of(entries)),
            counts.astype(np.int32).tobytes(),
            b"".join(self._residency.parents_of(firsts)),
            self._tokens[entries].tobytes(),
            self._keys_of(entries) if self._keys else (),
        )

    def _keys_of(self, entries: Ids) -> tuple[KvKey, ...]:
        found = ((place, self._keys.get(entry, ())) for place, entry in enumerate(entries.tolist()))
        return tuple([_as_told(place, key) for place, keys in found for key in keys])

    def _say_what_follows(self, entries: Ids, counts: Ids) -> None:
        """Tell of the runs whose parents were told; what stands behind others is told after them."""
        ends = np.cumsum(counts).tolist()
        runs = [entries[end - count : end] for end, count in zip(ends, counts.tolist(), strict=True)]
        for run in runs:
            above = self._residency.parent_entry(int(run[0]))
            if above == NO_ENTRY or self._told[above]:
                self._told[run] = True
                self._changes.append(self._as_stored(run, np.array([len(run)])))
            else:
                self._untold.append((run.tolist(), self._births))

    def _catch_up(self) -> None:
        """Tell the next slice of what the listener does not know."""
        due: list[int] = []
        while self._untold and (not due or len(due) + len(self._untold[0][0]) <= SLICE):
            entries, before = self._untold.popleft()
            births = self._born[entries]
            due += compress(entries, ((births != _NOBODY) & (births < before)).tolist())
        if due:
            found = np.array(due)
            self._told[found] = True
            begins = np.flatnonzero(self._residency.parent_entries(found)[1:] != found[:-1]) + 1
            counts = np.diff(begins, prepend=0, append=len(found))
            self._changes.append(self._as_stored(found, counts))


def _as_told(place: int, key: Key) -> KvKey:
    """A key of the block that has this place in its change."""
    match key:
        case ("mm", identity, int(offset)):
            return KvKey(place, "mm", identity, offset)
        case ("prompt_embeds", bytes(digest)):
            return KvKey(place, "prompt_embeds", digest=digest)
        case (kind, str(name), *_):
            return KvKey(place, kind, name)
    raise ValueError(f"{key[0]} is no kind of key")
