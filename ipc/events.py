"""What the world is told about the KV cache, and its encoding, which the readers of vLLM's event stream understand.

A batch is [ts, events, rank] in MessagePack. An event is a map, or the array of that map's values. The block
pool makes the events, the publisher encodes them, subscribers decode them. Sockets, sequence numbers
and replay are elsewhere.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgpack

from ..common.errors import BadMessage

GPU = "GPU"
"""The medium of blocks in the executor's memory; others are CPU and STORAGE."""

Form = Literal["map", "array"]

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


def encode_batch(ts: float, events: Sequence[KvEvent], rank: int, form: Form) -> bytes:
    """The payload of one message of the stream."""
    fields = [_fields(event, extra_keys=form == "array") for event in events]
    encoded = fields if form == "map" else [list(values.values()) for values in fields]
    payload: bytes = msgpack.packb([float(ts), encoded, rank])
    return payload


def _fields(event: KvEvent, extra_keys: bool) -> dict[str, Any]:
    """An event by the names of the map form, in the order of both. `extra_keys`: also where no block has any."""
    match event:
        case Cleared():
            return {"type": "AllBlocksCleared"}
        case Removed():
            return {"type": "BlockRemoved", "block_hashes": _hashes(event.digests), "medium": event.medium}
        case Stored():
            fields = {
                "type": "BlockStored",
                "block_hashes": _hashes(event.digests),
                "parent_block_hash": None if event.parent is None else _hashes((event.parent,))[0],
                "token_ids": struct.unpack(f"<{len(event.tokens) // 4}I", event.tokens),
                "block_size": event.block_size,
                "lora_id": None,
                "medium": event.medium,
                "lora_name": event.adapter,
            }
            return {**fields, "extra_keys": event.keys} if extra_keys or event.keys else fields


def _hashes(digests: Sequence[bytes]) -> tuple[int, ...]:
    """The last 8 bytes of each digest as an unsigned integer."""
    return struct.unpack(f">{len(digests)}Q", b"".join([digest[-8:] for digest in digests]))


_STORED_NAMES = tuple(_fields(Stored((), None, b"", 1), extra_keys=True))
_REMOVED_NAMES = tuple(_fields(Removed(()), extra_keys=False))


def decode_batch(payload: bytes) -> Batch:
    """The batch in a payload, whose events may be maps or arrays.

    Maps with unknown keys and arrays that are longer or shorter than ours are read. An event that makes no sense is
    counted and left out. A payload that is no batch raises BadMessage.
    """
    try:
        value = msgpack.unpackb(payload, strict_map_key=False)
    except (ValueError, TypeError, msgpack.UnpackException, RecursionError) as error:
        raise BadMessage(f"not MessagePack: {type(error).__name__}") from None
    match value:
        case [int() | float() as ts, [*found], int(rank), *_] if rank >= 0:
            events = [event for event in map(_decoded, found) if event is not None]
            return Batch(float(ts), tuple(events), rank, len(found) - len(events))
    raise BadMessage("not a batch of KV events")


def _decoded(value: Any) -> KvEvent | None:
    """An event from either form, or None if it makes no sense."""
    match value:
        case ["BlockStored", *_]:
            fields = dict(zip(_STORED_NAMES, value, strict=False))
        case ["BlockRemoved", *_]:
            fields = dict(zip(_REMOVED_NAMES, value, strict=False))
        case ["AllBlocksCleared", *_] | {"type": "AllBlocksCleared"}:
            return Cleared()
        case {"type": "BlockStored" | "BlockRemoved"}:
            fields = value
        case _:
            return None
    try:
        return _stored(fields) if fields["type"] == "BlockStored" else _removed(fields)
    except (KeyError, TypeError, struct.error):
        return None


def _stored(fields: dict[str, Any]) -> Stored:
    """Raises KeyError, TypeError or struct.error for fields that make no sense, as does `_removed`."""
    match fields:
        case {"token_ids": [*tokens], "block_size": int(block_size)}:
            digests, parent = _digests(fields["block_hashes"]), fields["parent_block_hash"]
        case _:
            raise TypeError("no tokens, or no block size")
    if len(tokens) != block_size * len(digests):
        raise TypeError(f"{len(tokens)} tokens in {len(digests)} blocks of {block_size}")
    return Stored(
        digests,
        None if parent is None else _digests([parent])[0],
        struct.pack(f"<{len(tokens)}I", *tokens),
        block_size,
        _keys(fields.get("extra_keys"), len(digests)),
        _text(fields.get("lora_name")),
        _text(fields.get("medium")) or GPU,
    )


def _removed(fields: dict[str, Any]) -> Removed:
    return Removed(_digests(fields["block_hashes"]), _text(fields.get("medium")) or GPU)


def _digests(hashes: Sequence[int]) -> tuple[bytes, ...]:
    """The last 8 bytes of digests."""
    return tuple([struct.pack(">Q", value) for value in hashes])


def _text(value: object) -> str | None:
    if value is not None and type(value) is not str:
        raise TypeError(f"{type(value).__name__} where text belongs")
    return value


def _keys(value: Sequence[Sequence[Any] | None] | None, blocks: int) -> PublishedKeys | None:
    if value is None:
        return None
    if len(value) != blocks:
        raise TypeError(f"keys of {len(value)} blocks for {blocks}")
    return tuple([None if keys is None else tuple([_key(key) for key in keys]) for keys in value])


def _key(value: Any) -> PublishedKey:
    match value:
        case str() | bytes():
            return value
        case [str(identity), int(place)]:
            return identity, place
    raise TypeError(f"{type(value).__name__} is no key")
