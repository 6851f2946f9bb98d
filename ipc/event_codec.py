"""Batches of KV events to bytes and back: the forms that readers of vLLM's event stream understand.

A batch is [ts, events, rank] in MessagePack. An event is a map, or the array of that map's values, tag first. The
publisher encodes, subscribers decode, also what others have written: unknown keys and events, arrays that are
longer or shorter than ours.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import msgpack
import numpy as np

from ..common.errors import BadMessage
from .events import GPU, HASH_BYTES, Batch, Cleared, Form, KvEvent, PublishedKey, PublishedKeys, Removed, Stored
from .packed import packed_uints

_NO_HASHES = np.zeros(0, np.uint64)
_REMOVED_NAMES = ("type", "block_hashes", "medium")
_STORED_NAMES = (
    *("type", "block_hashes", "parent_block_hash", "token_ids", "block_size"),
    *("lora_id", "medium", "lora_name", "extra_keys"),
)


def _pack(value: object) -> bytes:
    packed: bytes = msgpack.packb(value)
    return packed


_NAMES = {name: _pack(name) for name in (*_STORED_NAMES, "BlockStored", "BlockRemoved")}
_NIL = _pack(None)
_CLEARED = {"map": _pack({"type": "AllBlocksCleared"}), "array": _pack(["AllBlocksCleared"])}


def encode_batch(ts: float, events: Sequence[KvEvent], rank: int, form: Form) -> bytes:
    """The payload of one message of the stream. 512 blocks of 16 tokens in one event take 80 us."""
    return joined(ts, [encode_event(event, form) for event in events], rank)


def joined(ts: float, events: Sequence[bytes], rank: int) -> bytes:
    """A payload of events that are encoded already."""
    head = msgpack.Packer().pack_array_header(len(events))
    return b"".join([b"\x93", _pack(float(ts)), head, *events, _pack(rank)])


def encode_event(event: KvEvent, form: Form) -> bytes:
    """A part of a payload."""
    match event:
        case Cleared():
            return _CLEARED[form]
        case Removed():
            return _joined(_REMOVED_NAMES, (_NAMES["BlockRemoved"], _hashes(event.digests), _pack(event.medium)), form)
        case Stored():
            return _joined(_STORED_NAMES, _stored_fields(event, form), form)


def _stored_fields(event: Stored, form: Form) -> list[bytes]:
    """The encoded fields of both forms, in their order; the keys only where they are said."""
    fields = [
        _NAMES["BlockStored"],
        _hashes(event.digests),
        _NIL if event.parent is None else _pack(int.from_bytes(event.parent[-HASH_BYTES:], "big")),
        packed_uints(np.frombuffer(event.tokens, np.uint32)),
        _pack(event.block_size),
        _NIL,
        _pack(event.medium),
        _pack(event.adapter),
    ]
    return [*fields, _pack(event.keys)] if form == "array" or event.keys else fields


def _joined(names: Sequence[str], fields: Sequence[bytes], form: Form) -> bytes:
    """The fields as an array, or as a map with their names; there are less than sixteen."""
    if form == "array":
        return bytes([0x90 | len(fields)]) + b"".join(fields)
    pairs = zip(names, fields, strict=False)
    return bytes([0x80 | len(fields)]) + b"".join([part for name, field in pairs for part in (_NAMES[name], field)])


def _hashes(digests: Sequence[bytes]) -> bytes:
    """The last 8 bytes of each digest as an unsigned integer."""
    if not digests:
        return packed_uints(_NO_HASHES)
    ends = np.frombuffer(b"".join(digests), ">u8").reshape(len(digests), -1)[:, -1]
    return packed_uints(ends.astype(np.uint64))


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
