"""Golden bytes with every field in use, read by structs that are declared as vLLM declares its events."""

from typing import Any

import msgspec
import numpy as np
import pytest

from fourstroke.ipc.event_codec import encode_batch
from fourstroke.ipc.events import Cleared, Removed, Stored

FIRST = bytes.fromhex("f6660814c0f5fab668e3a3e4cc9d7c843f32e254d6a433791cccfba573d0cf8a")
SECOND = bytes.fromhex("da25ae2ea37cfe14f808bf230a0ad0c2bca0e7a731e7f54cf20358aa4fbb8879")
HASHES = [2075310216342196106, 17438879670614067321]
TOKENS = [100, 200, 300, 70000, 104, 105, 106, 107]
EVENTS = (
    Stored(
        (FIRST, SECOND),
        bytes(31) + b"\x07",
        np.array(TOKENS, np.uint32).tobytes(),
        4,
        (("name", ("imgA", -2), "s1", b"\x01\x02"), None),
        "name",
        "CPU",
    ),
    Removed((SECOND, FIRST), "STORAGE"),
    Cleared(),
)
GOLDEN = {
    "map": "93cb3ff80000000000009389a474797065ab426c6f636b53746f726564ac626c6f636b5f68617368657392cf1cccfba573d0cf8acf"
    "f20358aa4fbb8879b1706172656e745f626c6f636b5f6861736807a9746f6b656e5f6964739864ccc8cd012cce0001117068696a6baa626c6f"
    "636b5f73697a6504a76c6f72615f6964c0a66d656469756da3435055a96c6f72615f6e616d65a46e616d65aa65787472615f6b6579739294a4"
    "6e616d6592a4696d6741fea27331c4020102c083a474797065ac426c6f636b52656d6f766564ac626c6f636b5f68617368657392cff20358aa"
    "4fbb8879cf1cccfba573d0cf8aa66d656469756da753544f5241474581a474797065b0416c6c426c6f636b73436c656172656403",
    "array": "93cb3ff80000000000009399ab426c6f636b53746f72656492cf1cccfba573d0cf8acff20358aa4fbb8879079864ccc8cd012cce"
    "0001117068696a6b04c0a3435055a46e616d659294a46e616d6592a4696d6741fea27331c4020102c093ac426c6f636b52656d6f76656492cff2"
    "0358aa4fbb8879cf1cccfba573d0cf8aa753544f5241474591b0416c6c426c6f636b73436c656172656403",
}


class InMaps(msgspec.Struct, omit_defaults=True, tag=True, forbid_unknown_fields=True):
    """What events have in common where they are maps."""


class InArrays(msgspec.Struct, array_like=True, omit_defaults=True, tag=True):
    """What events have in common where they are arrays."""


def batch_of(kind: type) -> type:
    """The batch of events of a kind, as vLLM declares it."""
    hashes, text = list[int], str | None
    stored = msgspec.defstruct(
        "BlockStored",
        [
            ("block_hashes", hashes),
            ("parent_block_hash", int | None),
            ("token_ids", list[int]),
            ("block_size", int),
            ("lora_id", int | None),
            ("medium", text),
            ("lora_name", text),
            ("extra_keys", list[tuple[Any, ...] | None] | None, None),
        ],
        bases=(kind,),
    )
    removed = msgspec.defstruct("BlockRemoved", [("block_hashes", hashes), ("medium", text)], bases=(kind,))
    cleared = msgspec.defstruct("AllBlocksCleared", [], bases=(kind,))
    fields = [("ts", float), ("events", list[stored | removed | cleared]), ("data_parallel_rank", int | None, None)]
    return msgspec.defstruct("KVEventBatch", fields, array_like=True)


BATCHES = {"map": batch_of(InMaps), "array": batch_of(InArrays)}


@pytest.mark.parametrize("form", GOLDEN)
def test_golden_bytes_of_all_fields(form):
    """Every event, with keys of each form, an adapter, another medium and a parent, is byte for byte as it was."""
    assert encode_batch(1.5, EVENTS, 3, form).hex() == GOLDEN[form]


@pytest.mark.parametrize("form", GOLDEN)
def test_vllms_structs_read_them(form):
    """Strict decoding by declared types gives every field; nothing is missing and nothing unknown."""
    batch = msgspec.msgpack.decode(bytes.fromhex(GOLDEN[form]), type=BATCHES[form])
    stored, removed, cleared = batch.events
    assert (batch.ts, batch.data_parallel_rank) == (1.5, 3)
    assert (stored.block_hashes, stored.parent_block_hash, stored.token_ids) == (HASHES, 7, TOKENS)
    assert (stored.block_size, stored.lora_id, stored.medium, stored.lora_name) == (4, None, "CPU", "name")
    assert stored.extra_keys == [("name", ["imgA", -2], "s1", b"\x01\x02"), None]
    assert (removed.block_hashes, removed.medium) == (HASHES[::-1], "STORAGE")
    assert type(cleared).__name__ == "AllBlocksCleared"


@pytest.mark.parametrize("form", GOLDEN)
def test_without_what_may_be_left_out(form):
    """A plain run of blocks is read by the same structs."""
    plain = Stored((FIRST,), None, EVENTS[0].tokens[:16], 4)
    batch = msgspec.msgpack.decode(encode_batch(2.0, (plain,), 0, form), type=BATCHES[form])
    assert (batch.events[0].parent_block_hash, batch.events[0].extra_keys) == (None, None)
