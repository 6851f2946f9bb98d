"""The encoding of KV events: golden bytes, both forms there and back, and streams that others wrote."""

import contextlib

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fourstroke.common.errors import BadMessage
from fourstroke.ipc.event_codec import decode_batch, encode_batch
from fourstroke.ipc.events import Batch, Cleared, Removed, Stored

FORMS = ("map", "array")

FIRST = bytes.fromhex("f6660814c0f5fab668e3a3e4cc9d7c843f32e254d6a433791cccfba573d0cf8a")
SECOND = bytes.fromhex("da25ae2ea37cfe14f808bf230a0ad0c2bca0e7a731e7f54cf20358aa4fbb8879")
GOLDEN = {
    "map": "93cb3ff80000000000009388a474797065ab426c6f636b53746f726564ac626c6f636b5f68617368657392cf1cccfba573d0cf8a"
    "cff20358aa4fbb8879b1706172656e745f626c6f636b5f68617368c0a9746f6b656e5f696473986465666768696a6baa626c6f636b5f7369"
    "7a6504a76c6f72615f6964c0a66d656469756da3475055a96c6f72615f6e616d65c083a474797065ac426c6f636b52656d6f766564ac626c"
    "6f636b5f68617368657391cff20358aa4fbb8879a66d656469756da347505581a474797065b0416c6c426c6f636b73436c656172656400",
    "array": "93cb3ff80000000000009399ab426c6f636b53746f72656492cf1cccfba573d0cf8acff20358aa4fbb8879c0986465666768696a"
    "6b04c0a3475055c0c093ac426c6f636b52656d6f76656491cff20358aa4fbb8879a347505591b0416c6c426c6f636b73436c656172656400",
}


def column(*tokens: int) -> bytes:
    return np.array(tokens, np.uint32).tobytes()


STORED = Stored((FIRST, SECOND), None, column(*range(100, 108)), 4)
EVENTS = (STORED, Removed((SECOND,)), Cleared())


def short(digest: bytes | None) -> bytes | None:
    return None if digest is None else digest[-8:]


def as_read(event):
    """An event as a reader has it: of digests it knows the last 8 bytes."""
    match event:
        case Stored(digests, parent, tokens, size, keys, adapter, medium):
            return Stored(tuple(map(short, digests)), short(parent), tokens, size, keys, adapter, medium)
        case Removed(digests, medium):
            return Removed(tuple(map(short, digests)), medium)
    return event


@st.composite
def stored(draw):
    digests = draw(st.lists(st.binary(min_size=32, max_size=32), min_size=1, max_size=4))
    size = draw(st.integers(1, 5))
    tokens = draw(st.lists(st.integers(0, 2**32 - 1), min_size=size * len(digests), max_size=size * len(digests)))
    key = st.text() | st.binary() | st.tuples(st.text(), st.integers(-(2**31), 2**31))
    of_block = st.none() | st.lists(key, max_size=3).map(tuple)
    keys = draw(st.none() | st.lists(of_block, min_size=len(digests), max_size=len(digests)).map(tuple))
    parent = draw(st.none() | st.binary(min_size=32, max_size=32))
    adapter, medium = draw(st.none() | st.text(min_size=1)), draw(st.sampled_from(["GPU", "CPU"]))
    return Stored(tuple(digests), parent, column(*tokens), size, keys, adapter, medium)


removed = st.builds(Removed, st.lists(st.binary(min_size=32, max_size=32)).map(tuple), st.sampled_from(["GPU", "CPU"]))
batches = st.lists(stored() | removed | st.just(Cleared()), max_size=5)


@pytest.mark.parametrize("form", FORMS)
def test_golden_payloads(form):
    """One batch of each kind of event is byte for byte what the specification shows, and is read back. (EV-1)"""
    payload = bytes.fromhex(GOLDEN[form])
    assert encode_batch(1.5, EVENTS, 0, form) == payload
    assert decode_batch(payload) == Batch(1.5, tuple(map(as_read, EVENTS)), 0)


@pytest.mark.parametrize("form", FORMS)
@given(events=batches, ts=st.floats(0, 1e10), rank=st.integers(0, 1000))
def test_there_and_back(form, events, ts, rank):
    """What is encoded is decoded, but for the first 24 bytes of digests, and encodes to the same bytes again. (EV-1)"""
    payload = encode_batch(ts, events, rank, form)
    batch = decode_batch(payload)
    assert batch == Batch(ts, tuple(map(as_read, events)), rank)
    assert encode_batch(batch.ts, batch.events, batch.rank, form) == payload


def test_the_time_is_a_float():
    """Also where the clock gives whole seconds: some readers refuse an integer."""
    assert type(msgpack.unpackb(encode_batch(7, (), 0, "map"))[0]) is float


def test_extra_keys_are_there_when_they_mean_something():
    """The map form leaves them out where no block has any; the array form always has nine elements."""
    with_keys = Stored((FIRST, SECOND), FIRST, column(*range(8)), 4, (("name", ("imgA", -2), "s1"), None), "name")
    for event, expected in ((STORED, None), (with_keys, [["name", ["imgA", -2], "s1"], None])):
        in_map = msgpack.unpackb(encode_batch(0, [event], 0, "map"))[1][0]
        in_array = msgpack.unpackb(encode_batch(0, [event], 0, "array"))[1][0]
        assert in_map.get("extra_keys") == expected
        assert ("extra_keys" in in_map) == (expected is not None)
        assert len(in_array) == 9
        assert in_array[8] == expected
        assert in_array[7] == in_map["lora_name"] == event.adapter


# What others write


def test_unknown_keys_and_other_lengths():
    """Maps with more keys, arrays that are shorter or longer, and batches with more elements are read."""
    events = [
        {
            "type": "BlockStored",
            "block_hashes": [1],
            "parent_block_hash": 2,
            "token_ids": [3],
            "block_size": 1,
            "new": 0,
        },
        ["BlockStored", [1], 2, [3], 1],
        ["BlockStored", [1], 2, [3], 1, None, "GPU", None, None, "more"],
        {"type": "BlockRemoved", "block_hashes": [1], 5: 6},
        ["BlockRemoved", [1]],
        ["AllBlocksCleared", 0],
    ]
    one, two = (bytes(7) + bytes([number]) for number in (1, 2))
    stored, removed = Stored((one,), two, column(3), 1), Removed((one,))
    batch = decode_batch(msgpack.packb([1.0, events, 3, "more"]))
    assert batch == Batch(1.0, (stored, stored, stored, removed, removed, Cleared()), 3)


@pytest.mark.parametrize(
    "event",
    [
        None,
        5,
        [],
        {},
        ["BlockMoved", [1]],
        ["BlockStored", [1]],
        ["BlockStored", [1], None, [3, 4], 1],
        ["BlockStored", [1], None, [3], "1"],
        ["BlockStored", [1], None, [2**32], 1],
        ["BlockStored", [2**64 - 1, -1], None, [3, 4], 1],
        ["BlockStored", [1], "x", [3], 1],
        ["BlockStored", [1], None, [3], 1, None, 7],
        ["BlockStored", [1], None, [3], 1, None, "GPU", 7],
        ["BlockStored", [1], None, [3], 1, None, "GPU", None, [None, None]],
        ["BlockStored", [1], None, [3], 1, None, "GPU", None, [[["a", 1, 2]]]],
        ["BlockRemoved"],
        ["BlockRemoved", 5],
        ["BlockRemoved", ["1"]],
        ["BlockRemoved", [1], 5],
    ],
)
def test_a_bad_event_does_not_hide_the_others(event):
    """An event that makes no sense is counted, and those around it are read."""
    payload = msgpack.packb([1.0, [["BlockRemoved", [1]], event, ["AllBlocksCleared"]], 0])
    assert decode_batch(payload) == Batch(1.0, (Removed((bytes(7) + b"\x01",)), Cleared()), 0, unread=1)


@pytest.mark.parametrize("value", [None, [], [1.0, []], [1.0, {}, 0], ["1", [], 0], [1.0, [], -1], [1.0, [], None]])
def test_a_payload_that_is_no_batch(value):
    """Raises BadMessage and nothing else."""
    with pytest.raises(BadMessage):
        decode_batch(msgpack.packb(value))


@given(st.binary(max_size=80))
def test_any_bytes(payload):
    """Garbage is a BadMessage or a batch, never another error."""
    with contextlib.suppress(BadMessage):
        decode_batch(payload)


@given(st.integers(0, 170), st.integers(0, 255), st.sampled_from(FORMS))
def test_any_byte_of_a_batch_may_be_wrong(place, byte, form):
    """The same for a real batch with one byte changed."""
    payload = bytearray(bytes.fromhex(GOLDEN[form]))
    payload[place % len(payload)] = byte
    with contextlib.suppress(BadMessage):
        decode_batch(bytes(payload))
