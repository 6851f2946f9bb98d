"""From the columns in which the scheduler tells of its cache to events: one for each run of stored blocks.

The publisher calls it; the scheduler has no time for it.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from ..common.errors import BadMessage
from ..common.types import KvKind
from .events import Cleared, KvEvent, PublishedKey, Removed, Stored
from .messages import DIGEST_BYTES, KvChange, KvKey


def events_of(change: KvChange, root: bytes, salt_prefix: str = "") -> list[KvEvent]:
    """The events that a change stands for. `root` is the digest that stands for no parent.

    `salt_prefix` is put before each salt that is told. Raises BadMessage if the runs are not the blocks.
    """
    match change.kind:
        case KvKind.CLEARED:
            return [Cleared()]
        case KvKind.REMOVED:
            return [Removed(tuple(_cut(change.digests, DIGEST_BYTES)))]
        case KvKind.STORED:
            return _runs(change, root, salt_prefix)


def _runs(change: KvChange, root: bytes, salt_prefix: str) -> list[KvEvent]:
    digests, parents = _cut(change.digests, DIGEST_BYTES), _cut(change.parents, DIGEST_BYTES)
    counts = np.frombuffer(change.counts, np.int32)
    if (counts < 1).any() or counts.sum() != len(digests) or not change.tokens:
        raise BadMessage(f"{len(digests)} blocks in runs of {counts.tolist()[:4]}")
    block_bytes = len(change.tokens) // max(1, len(digests))
    keys = _keys_by_block(change.keys, salt_prefix)
    adapters = {key.block: key.name for key in change.keys if key.kind == "lora"}
    events: list[KvEvent] = []
    begin = 0
    for parent, count in zip(parents, counts.tolist(), strict=True):
        end = begin + count
        of_run = [keys.get(block) for block in range(begin, end)] if keys else []
        events.append(
            Stored(
                tuple(digests[begin:end]),
                None if parent == root else parent,
                change.tokens[begin * block_bytes : end * block_bytes],
                block_bytes // 4,
                tuple(of_run) if any(of_run) else None,
                adapters.get(begin),
            )
        )
        begin = end
    return events


def _cut(column: bytes, size: int) -> list[bytes]:
    return [column[at : at + size] for at in range(0, len(column), size)]


def _keys_by_block(keys: tuple[KvKey, ...], salt_prefix: str) -> dict[int, tuple[PublishedKey, ...]]:
    """What the world is told of the keys of each block that has some: no kinds, and no path of an adapter."""
    found: defaultdict[int, list[PublishedKey]] = defaultdict(list)
    for key in keys:
        found[key.block].append(_published(key, salt_prefix))
    return {block: tuple(of_block) for block, of_block in found.items()}


def _published(key: KvKey, salt_prefix: str) -> PublishedKey:
    match key.kind:
        case "mm":
            return key.name, key.place
        case "cache_salt":
            return salt_prefix + key.name
        case "prompt_embeds":
            return key.digest
    return key.name
