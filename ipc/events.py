"""What the world is told about the KV cache.

The publisher makes events of what the scheduler tells it (event_columns.py) and encodes them; subscribers decode them
(event_codec.py). Sockets, sequence numbers and replay are elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

GPU = "GPU"
"""The medium of blocks in the executor's memory; others are CPU and STORAGE."""

Form = Literal["map", "array"]

DYNAMO_SALT_PREFIX = "dynamo-cache-salt:"
"""What Dynamo wants to see before a salt."""

HASH_BYTES = 8
"""So many bytes of a digest, its last ones, are what the world is told of it."""

PublishedKey = str | tuple[str, int] | bytes
"""An adapter's name or a salt; an image's identity and place; the digest of an embedding."""

PublishedKeys = tuple[tuple[PublishedKey, ...] | None, ...]


@dataclass(frozen=True, slots=True)
class Stored:
    """A run of blocks of one chain is in the cache now. `parent` is the digest before the first, None for a root.

    Digests have 32 bytes where they were made. The wire carries the last 8 of them, which is all that a decoded
    event has. `tokens` is a column of uint32, `block_size` for each digest. `keys` has one entry for each
    digest, or is None if no block has any; `adapter` is the name that stands in them, if one does.
    """

    digests: tuple[bytes, ...]
    parent: bytes | None
    tokens: bytes
    block_size: int
    keys: PublishedKeys | None = None
    adapter: str | None = None
    medium: str = GPU


@dataclass(frozen=True, slots=True)
class Removed:
    """The last copies of some blocks have left the cache, children before parents."""

    digests: tuple[bytes, ...]
    medium: str = GPU


@dataclass(frozen=True, slots=True)
class Cleared:
    """The cache is empty now."""


KvEvent = Stored | Removed | Cleared


@dataclass(frozen=True, slots=True)
class Batch:
    """A decoded batch: `ts` in Unix seconds; `unread` counts events that made no sense."""

    ts: float
    events: tuple[KvEvent, ...]
    rank: int
    unread: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether it tells nothing: a heartbeat, or what stands for a batch that is not kept any more."""
        return not self.events and not self.unread

    @property
    def begins_cleared(self) -> bool:
        """Whether it says first that nothing is cached, so that nothing of before matters."""
        return bool(self.events) and isinstance(self.events[0], Cleared)
