"""Which prefixes each rank has in its KV cache, built of the events of all ranks: the heart of a router.

Blocks are found by their tokens and keys behind their parent, whatever hash the publisher uses. `verify` computes the
hashes again, for a publisher that uses ours (block_hash.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from .block_hash import DEFAULT_SEED, Key, Keys, encode_blocks, extend, root
from .events import DYNAMO_SALT_PREFIX, HASH_BYTES, Batch, Cleared, KvEvent, PublishedKey, Removed, Stored
from .shadow import Block, Shadow, blocks_of

_Place = tuple[bytes | None, bytes, tuple[PublishedKey, ...] | None, str | None]
"""What tells a block from others: its parent, tokens, keys, and its adapter, which may be called like a key."""


class _Rank:
    """What one rank has: the state that its events tell, and a way from tokens to hashes."""

    def __init__(self) -> None:
        self.shadow = Shadow()
        self.found: dict[_Place, bytes] = {}

    def apply(self, event: KvEvent) -> None:
        before = self._blocks(event.digests) if isinstance(event, Removed) else {}
        self.shadow.apply(event)
        match event:
            case Stored():
                self.found.update({_place(block): digest for digest, block in blocks_of(event)})
            case Removed():
                for digest, block in before.items():
                    if self.block(digest) is None:
                        self.found.pop(_place(block), None)
            case Cleared():
                self.found.clear()

    def block(self, digest: bytes) -> Block | None:
        """The block with this hash, in whichever medium."""
        return next((blocks[digest] for blocks in self.shadow.media.values() if digest in blocks), None)

    def _blocks(self, digests: Sequence[bytes]) -> dict[bytes, Block]:
        known = ((digest[-HASH_BYTES:], self.block(digest[-HASH_BYTES:])) for digest in digests)
        return {digest: block for digest, block in known if block is not None}


def _place(block: Block) -> _Place:
    return block.parent, block.tokens, block.keys or None, block.adapter


class KvIndex:
    """An index of blocks of `block_size` tokens. `seed` and `adapter_paths` (by name) are only for `verify`."""

    def __init__(
        self, block_size: int, *, seed: str = DEFAULT_SEED, adapter_paths: Mapping[str, str] | None = None
    ) -> None:
        self.block_size = block_size
        self._root = root(seed)
        self._adapter_paths = adapter_paths or {}
        self._ranks: dict[int, _Rank] = {}

    def __len__(self) -> int:
        """Blocks of all ranks, in each medium."""
        return sum(len(rank.shadow) for rank in self._ranks.values())

    def apply(self, batch: Batch) -> None:
        """Take in a batch; those of a rank in their order."""
        rank = self._ranks.setdefault(batch.rank, _Rank())
        for event in batch.events:
            rank.apply(event)

    def forget(self, rank: int) -> None:
        """Nothing is known of a rank any more."""
        self._ranks.pop(rank, None)

    def hashes(self, rank: int = 0) -> set[int]:
        """The published hashes of all blocks that a rank has."""
        known = self._ranks.get(rank, _Rank()).shadow.media.values()
        return {int.from_bytes(digest, "big") for blocks in known for digest in blocks}

    def match(self, tokens: Sequence[int], salt: str | None = None, lora: str | None = None) -> dict[int, int]:
        """How many of the first tokens of a prompt each rank has cached; ranks that have none are left out.

        A salt is also found where it is told with Dynamo's prefix.
        """
        adapter = (lora,) if lora else ()
        size, column = 4 * self.block_size, np.array(tokens, np.uint32).tobytes()
        blocks = [column[at : at + size] for at in range(0, len(column) - size + 1, size)]
        counts = {
            number: max(_matched(rank, blocks, adapter, told, lora) for told in _told_as(salt))
            for number, rank in self._ranks.items()
        }
        return {number: count * self.block_size for number, count in counts.items() if count}

    def verify(self) -> list[str]:
        """What does not fit: blocks without their parent, of another size, or whose hash is not that of their content.

        Empty if all is well.
        """
        return [f"rank {number}: {problem}" for number, rank in self._ranks.items() for problem in self._problems(rank)]

    def _problems(self, rank: _Rank) -> Iterator[str]:
        digests: dict[bytes | None, bytes] = {None: self._root}
        for medium, blocks in rank.shadow.media.items():
            for known, block in blocks.items():
                if len(block.tokens) != 4 * self.block_size:
                    yield f"block {known.hex()} in {medium} has {len(block.tokens) // 4} tokens"
                elif block.parent not in digests:
                    yield f"block {known.hex()} in {medium} has no parent"
                else:
                    digest = self._digest(digests[block.parent], block, known)
                    digests[known] = digest
                    if digest[-HASH_BYTES:] != known:
                        yield f"block {known.hex()} in {medium} should be {digest[-HASH_BYTES:].hex()}"

    def _digest(self, parent: bytes, block: Block, known: bytes) -> bytes:
        """The digest of a block: of those that its keys may stand for the one that is known, if one is."""
        (encoded,) = encode_blocks(np.frombuffer(block.tokens, np.int32)[None])
        possible = [extend(parent, encoded, keys) for keys in self._possible_keys(block)]
        return next((digest for digest in possible if digest[-HASH_BYTES:] == known), possible[0])

    def _possible_keys(self, block: Block) -> list[Keys | None]:
        """The keys of a block as they may have been hashed. An adapter comes first; its path is not published. A salt
        that begins with Dynamo's prefix may have been told with it, or be called like that.
        """
        if not block.keys:
            return [None]
        path = self._adapter_paths.get(block.adapter or "", "")
        named = block.adapter is not None and block.keys[0] == block.adapter
        first: Keys = [("lora", block.adapter or "", path)] if named else []
        told = block.keys[named:]
        return [first + [_tagged(key) for key in keys] for keys in dict.fromkeys((tuple(map(_bare, told)), told))]


def _bare(key: PublishedKey) -> PublishedKey:
    return key.removeprefix(DYNAMO_SALT_PREFIX) if isinstance(key, str) else key


def _told_as(salt: str | None) -> tuple[tuple[str, ...], ...]:
    """The keys that a salt may be told as, in the first block of a prompt."""
    return ((salt,), (DYNAMO_SALT_PREFIX + salt,)) if salt else ((),)


def _matched(
    rank: _Rank, blocks: Sequence[bytes], adapter: tuple[str, ...], salt: tuple[str, ...], lora: str | None
) -> int:
    """How many of these blocks, from a root on, a rank has."""
    parent: bytes | None = None
    keys = adapter + salt or None
    for count, tokens in enumerate(blocks):
        parent = rank.found.get((parent, tokens, keys, lora))
        if parent is None:
            return count
        keys = adapter or None
    return len(blocks)


def _tagged(key: PublishedKey) -> Key:
    match key:
        case (identity, place):
            return "mm", identity, place
        case bytes():
            return "prompt_embeds", key
        case str():
            return "cache_salt", key
    raise TypeError(f"{type(key).__name__} is no key")
