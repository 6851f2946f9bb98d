"""Random lives of a cache, as events: chains grow, end from their ends, and all is forgotten now and then."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np

from fourstroke.ipc.block_hash import ROOT, Keys, encode_blocks, extend
from fourstroke.ipc.events import Cleared, KvEvent, Removed, Stored

BLOCK = 4


def digests_of(parent: bytes, tokens: np.ndarray, keys: list[Keys | None]) -> list[bytes]:
    """The chain of blocks behind a parent; `tokens` are [blocks, BLOCK]."""
    found = []
    for encoded, of_block in zip(encode_blocks(tokens), keys, strict=True):
        parent = extend(parent, encoded, of_block)
        found.append(parent)
    return found


class Life:
    """A cache whose events come from `events`; `chains` are the digests of what is in it now, each from a root on."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)
        self.chains: list[list[bytes]] = []

    def events(self, count: int) -> Iterator[KvEvent]:
        for _ in range(count):
            roll = self._dice.random()
            if roll < 0.03:
                self.chains.clear()
                yield Cleared()
            elif roll < 0.4 and self.chains:
                yield self._shorten()
            else:
                yield self._grow()

    @property
    def digests(self) -> set[bytes]:
        return {digest for chain in self.chains for digest in chain}

    def _grow(self) -> Stored:
        new = not self.chains or self._dice.random() < 0.4
        chain: list[bytes] = [] if new else self._dice.choice(self.chains)
        if new:
            self.chains.append(chain)
        blocks = self._dice.randint(1, 5)
        tokens = np.array([[self._dice.randrange(70_000) for _ in range(BLOCK)] for _ in range(blocks)], np.int32)
        salted = new and self._dice.random() < 0.3
        keys: list[Keys | None] = [[("cache_salt", "s")] if salted and at == 0 else None for at in range(blocks)]
        parent = chain[-1] if chain else None
        digests = digests_of(parent or ROOT, tokens, keys)
        chain += digests
        told = tuple(("s",) if one else None for one in keys) if salted else None
        return Stored(tuple(digests), parent, tokens.tobytes(), BLOCK, told)

    def _shorten(self) -> Removed:
        chain = self._dice.choice(self.chains)
        count = self._dice.randint(1, len(chain))
        gone = chain[: -count - 1 : -1]
        del chain[-count:]
        if not chain:
            self.chains.remove(chain)
        return Removed(tuple(gone))
