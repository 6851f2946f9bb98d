"""What the known readers of KV events need, as rules for one stream: each says what is wrong, in words.

They look at the bare values of the payloads, since our own decoder forgives what a reader may not. Numbers in brackets
are those of the rows in docs/subscriber.md. Sockets and clocks are elsewhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgpack

MEDIA = ("GPU", "CPU", "STORAGE")
KINDS = ("full_attention", "mla_attention")

_ALWAYS = {
    "BlockStored": (
        *("block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name"),
    ),
    "BlockRemoved": ("block_hashes", "medium"),
    "AllBlocksCleared": (),
}
_SOMETIMES = {
    "BlockStored": ("extra_keys", "group_idx", "kv_cache_spec_kind"),
    "BlockRemoved": ("group_idx",),
    "AllBlocksCleared": (),
}
_ELEMENTS = {"BlockStored": 9, "BlockRemoved": 3, "AllBlocksCleared": 1}
_HASHES = range(1 << 64)
_TOKENS = range(1 << 32)


class Rules:
    """Holds batches of one rank, in their order, against the rules. `wrong` counts each thing that is wrong."""

    def __init__(self, rank: int) -> None:
        self.wrong: Counter[str] = Counter()
        self.batches = self.events = 0
        self.forms: Counter[str] = Counter()
        self._rank = rank
        self._block_size: Any = None
        self._stored: dict[str, set[int]] = {}
        self._knows_all = True

    def miss(self) -> None:
        """Batches before the next one have not come: until all is cleared nobody knows what is there."""
        self._knows_all = False

    def hear(self, payload: bytes) -> None:
        """Look at a payload."""
        self.wrong.update(self._batch(payload))

    def _batch(self, payload: bytes) -> Iterator[str]:
        try:
            batch = msgpack.unpackb(payload, strict_map_key=False)
        except (ValueError, TypeError, msgpack.UnpackException):
            yield "a payload is not MessagePack"
            return
        if not isinstance(batch, list) or len(batch) != 3 or not isinstance(batch[1], list):
            yield "a batch is not an array of three [2]"
            return
        self.batches += 1
        if not isinstance(batch[0], float):
            yield "a time is not a float [2]"
        if batch[2] != self._rank:
            yield f"a rank is {batch[2]!r} and not {self._rank} [2]"
        for event in batch[1]:
            self.events += 1
            yield from self._event(event)

    def _event(self, event: Any) -> Iterator[str]:
        fields = yield from self._fields(event)
        if fields is None:
            return
        if fields["type"] == "AllBlocksCleared":
            self._stored.clear()
            self._knows_all = True
            return
        hashes, medium = fields.get("block_hashes"), fields.get("medium")
        if not _all_in(hashes, _HASHES):
            yield "hashes are not unsigned integers of 64 bits [3]"
            return
        if medium not in MEDIA:
            yield f"a medium is {medium!r} [8]"
        here = self._stored.setdefault(str(medium), set())
        if fields["type"] == "BlockRemoved":
            if self._knows_all and not here.issuperset(hashes):
                yield "a block is removed that is not there [10]"
            here.difference_update(hashes)
            return
        yield from self._run(fields, hashes, here)
        here.update(hashes)

    def _fields(self, event: Any) -> Iterator[str] | Any:
        """The fields of either form by their names; None if it is no event."""
        if isinstance(event, dict) and event.get("type") in _ALWAYS:
            self.forms["map"] += 1
            kind, keys = event["type"], event.keys() - {"type"}
            missing, more = set(_ALWAYS[kind]) - keys, keys - {*_ALWAYS[kind], *_SOMETIMES[kind]}
            if missing:
                yield f"{kind} lacks {', '.join(sorted(missing))} [5]"
            if more:
                yield f"{kind} has {', '.join(sorted(map(str, more)))} [4]"
            return event
        if isinstance(event, list) and event and event[0] in _ELEMENTS:
            self.forms["array"] += 1
            kind = event[0]
            if len(event) != _ELEMENTS[kind]:
                yield f"{kind} has {len(event)} elements and not {_ELEMENTS[kind]} [7]"
            return dict(zip(("type", *_ALWAYS[kind], "extra_keys"), event, strict=False))
        yield "an event is of an unknown type [4]"
        return None

    def _run(self, fields: dict[str, Any], hashes: list[int], here: set[int]) -> Iterator[str]:
        """What may be wrong with stored blocks."""
        parent = fields.get("parent_block_hash")
        if len({*hashes, parent}) != len(hashes) + 1:
            yield "a hash is twice in an event [3]"
        if max(hashes) < 1 << 32:
            yield "hashes are tiny [3]"
        if self._knows_all and not here.isdisjoint(hashes):
            yield "a block is stored that is there already [10]"
        if self._knows_all and parent is not None and not any(parent in blocks for blocks in self._stored.values()):
            yield "a block is stored behind one that is not there [3]"
        yield from self._content(fields, len(hashes))

    def _content(self, fields: dict[str, Any], blocks: int) -> Iterator[str]:
        """What may be wrong with the tokens and facts of so many stored blocks."""
        tokens, size = fields.get("token_ids"), fields.get("block_size")
        self._block_size = self._block_size or size
        if size != self._block_size or not isinstance(size, int):
            yield f"the block size is {size!r} and was {self._block_size} [6]"
        elif not _all_in(tokens, _TOKENS) or len(tokens or ()) != size * blocks:
            yield "the tokens are not the blocks' [6]"
        if fields.get("lora_id") is not None:
            yield "a lora_id is not nil [5]"
        kind = fields.get("kv_cache_spec_kind")
        if ("group_idx" in fields) != (kind in KINDS):
            yield "group_idx and kv_cache_spec_kind do not come together [7]"
        if not _are_keys(fields.get("extra_keys"), blocks):
            yield "extra_keys have another form [9]"


def _all_in(values: Any, allowed: range) -> bool:
    return (
        isinstance(values, list) and bool(values) and all(type(value) is int and value in allowed for value in values)
    )


def _are_keys(keys: Any, blocks: int) -> bool:
    if keys is None:
        return True
    of_blocks = isinstance(keys, list) and len(keys) == blocks
    return of_blocks and all(one is None or (isinstance(one, list) and all(map(_is_key, one))) for one in keys)


def _is_key(key: Any) -> bool:
    match key:
        case str() | bytes() | [str(), int()]:
            return True
    return False
