"""What is in a KV cache, as its events tell: the state that a reader has after them.

The publisher keeps one for the events that it has forgotten, to tell late joiners; readers keep one for each rank.
Blocks are known by the last 8 bytes of their digests. They stand in the order in which they were stored, which has
parents before children.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from .events import HASH_BYTES, Cleared, KvEvent, PublishedKey, Removed, Stored

RUN_BLOCKS = 512
"""An event that is made of a state has so many blocks at most: 0.5 ms of work."""


class Block(NamedTuple):
    """A block: the hash before it, or None; its tokens, a column of uint32; its extra keys, adapter and medium."""

    parent: bytes | None
    tokens: bytes
    keys: tuple[PublishedKey, ...] | None
    adapter: str | None


class Shadow:
    """Which blocks are where: `media` has the blocks of each medium by their hashes."""

    def __init__(self) -> None:
        self.media: dict[str, dict[bytes, Block]] = {}

    def __len__(self) -> int:
        return sum(map(len, self.media.values()))

    def apply(self, event: KvEvent) -> None:
        """Take in what has happened. What is stored twice or removed without being there changes nothing."""
        match event:
            case Cleared():
                self.media.clear()
            case Removed():
                blocks = self.media.get(event.medium, {})
                for digest in event.digests:
                    blocks.pop(digest[-HASH_BYTES:], None)
            case Stored():
                blocks = self.media.setdefault(event.medium, {})
                for digest, block in blocks_of(event):
                    blocks.setdefault(digest, block)

    def events(self) -> Iterator[Stored]:
        """Events that rebuild this state from nothing, each after little work. It must not change meanwhile."""
        for medium, blocks in self.media.items():
            found: list[tuple[bytes, Block]] = []
            for digest, block in blocks.items():
                if found and not _goes_on(found, block):
                    yield _as_event(found, medium)
                    found = []
                found.append((digest, block))
            if found:
                yield _as_event(found, medium)


def blocks_of(event: Stored) -> Iterator[tuple[bytes, Block]]:
    """The blocks of a run, by their hashes."""
    size = 4 * event.block_size
    parent = None if event.parent is None else event.parent[-HASH_BYTES:]
    for place, digest in enumerate(event.digests):
        digest = digest[-HASH_BYTES:]
        keys = None if event.keys is None else event.keys[place]
        yield digest, Block(parent, event.tokens[place * size : (place + 1) * size], keys, event.adapter)
        parent = digest


def _goes_on(run: list[tuple[bytes, Block]], block: Block) -> bool:
    last, (_, first) = run[-1][0], run[0]
    return len(run) < RUN_BLOCKS and block.parent == last and block.adapter == first.adapter


def _as_event(run: list[tuple[bytes, Block]], medium: str) -> Stored:
    blocks = [block for _, block in run]
    keys = tuple(block.keys for block in blocks)
    first = blocks[0]
    return Stored(
        tuple(digest for digest, _ in run),
        first.parent,
        b"".join(block.tokens for block in blocks),
        len(first.tokens) // 4,
        keys if any(keys) else None,
        first.adapter,
        medium,
    )
