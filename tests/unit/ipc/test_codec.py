"""A frame is a message of the expected kind or a BadMessage; nothing else comes out, and nothing is raised."""

import dataclasses
import datetime
import enum
import types
import typing

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fourstroke.common.errors import BadMessage
from fourstroke.common.types import MAX_LOGPROBS, Finish, KvKind, State
from fourstroke.ipc import codec, messages
from fourstroke.ipc.messages import (
    DIGEST_BYTES,
    MAX_TOKENS,
    NO_LOGPROBS,
    CacheKeys,
    Hello,
    Image,
    KvBatch,
    KvChange,
    KvKey,
    Limits,
    NewRow,
    RemoteKv,
    Report,
    Sampling,
    Submit,
    Ticket,
)

TYPES = (*typing.get_args(messages.Message), Ticket)
SCALARS = {
    int: st.integers(-(2**63), 2**63 - 1),
    float: st.floats(allow_nan=False),
    str: st.text(max_size=20),
    bytes: st.binary(max_size=20),
    bool: st.booleans(),
}

counts = st.integers(1, MAX_TOKENS)
floats = SCALARS[float]


def some(values):
    """A strategy for tuples of a few values."""
    return st.lists(values, max_size=3).map(tuple)


BOUNDED = {
    Limits: st.tuples(counts, counts).flatmap(
        lambda pair: st.builds(
            Limits,
            st.just(max(pair)),
            st.just(min(pair)),
            st.booleans(),
            some(counts),
            some(st.lists(counts, min_size=1, max_size=3).map(tuple)),
        )
    ),
    Hello: st.builds(Hello, counts, counts, counts, counts, some(st.just(0)), counts),
    Sampling: st.lists(st.tuples(SCALARS[int], floats), max_size=3).flatmap(
        lambda pairs: st.builds(
            Sampling,
            *(floats, SCALARS[int], floats, floats),
            st.just(tuple(token for token, _ in pairs)),
            st.just(tuple(bias for _, bias in pairs)),
            *[st.integers(NO_LOGPROBS, MAX_LOGPROBS)] * 2,
            st.floats(0, exclude_min=True, allow_infinity=False),
            *[st.floats(allow_nan=False, allow_infinity=False)] * 2,
            SCALARS[str],
        )
    ),
    NewRow: st.builds(
        NewRow,
        *[SCALARS[int]] * 2,
        st.deferred(lambda: values_of(Sampling)),
        SCALARS[int],
        some(SCALARS[int]),
        SCALARS[int],
        *[st.binary(max_size=5).map(lambda token: token * 4)] * 2,
    ),
    RemoteKv: st.builds(
        RemoteKv,
        *[st.booleans()] * 2,
        SCALARS[str],
        st.integers(0, 2**63 - 1),
        st.binary(max_size=5).map(lambda block: block * 4),
        st.integers(-1, MAX_TOKENS - 1),
        some(st.integers(0, MAX_TOKENS - 1)),
    ),
    KvChange: st.integers(0, 3).flatmap(
        lambda blocks: st.builds(
            KvChange,
            st.sampled_from(KvKind),
            st.just(bytes(DIGEST_BYTES * blocks)),
            st.just(bytes(4)),
            st.just(bytes(DIGEST_BYTES)),
            st.integers(0, 4).map(lambda tokens: bytes(4 * tokens * blocks)),
            some(st.builds(KvKey, SCALARS[int], SCALARS[str], SCALARS[str], SCALARS[int], SCALARS[bytes])),
        )
    ),
    Image: st.builds(
        Image, SCALARS[str], st.integers(0, MAX_TOKENS - 1), st.integers(1, MAX_TOKENS - 1), SCALARS[bytes]
    ),
    Submit: st.integers(1, 3).flatmap(
        lambda choices: st.builds(
            Submit,
            st.lists(SCALARS[int], min_size=choices, max_size=choices, unique=True).map(tuple),
            st.lists(SCALARS[int], min_size=choices, max_size=choices).map(tuple),
            prompt_at=SCALARS[int],
            prompt_tokens=st.just(4),
            digests=st.just(bytes(DIGEST_BYTES)),
            keys=values_of(CacheKeys),
            sampling=values_of(Sampling),
            limits=values_of(Limits),
            priority=SCALARS[int],
            ticket=SCALARS[bytes],
            timeout_s=st.floats(0, 1e9),
            images=some(st.just(Image("cat", 1, 3, b"data"))),
            mrope=st.just(b"") | st.just(bytes(48)),
        )
    ),
    Ticket: st.builds(
        Ticket,
        SCALARS[str],
        some(SCALARS[str]),
        SCALARS[bool],
        SCALARS[bool],
        SCALARS[int],
        some(SCALARS[int]),
        st.integers(0, 3).map(lambda tokens: bytes(4 * tokens)),
    ),
}
"""Messages whose numbers are bounded by more than their types."""


def values_of(hint):
    """A strategy for what an annotation allows."""
    if hint in BOUNDED:
        return BOUNDED[hint]
    if isinstance(hint, types.UnionType):
        (kind,) = [part for part in typing.get_args(hint) if part is not types.NoneType]
        return st.none() | values_of(kind)
    if typing.get_origin(hint) is tuple:
        return st.lists(values_of(typing.get_args(hint)[0]), max_size=3).map(tuple)
    if dataclasses.is_dataclass(hint):
        hints = typing.get_type_hints(hint)
        return st.builds(hint, **{field.name: values_of(hints[field.name]) for field in dataclasses.fields(hint)})
    if issubclass(hint, enum.IntEnum):
        return st.sampled_from(hint)
    return SCALARS[hint]


any_message = st.sampled_from(TYPES).flatmap(values_of)

now = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
leaves = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=8)
    | st.binary(max_size=8)
    | st.builds(msgpack.ExtType, st.integers(0, 127), st.binary(max_size=8))
    | st.just(msgpack.Timestamp.from_datetime(now))
)
keys = st.text(max_size=4) | st.binary(max_size=4) | st.integers(0, 9) | st.booleans() | st.none()
anything = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=10,
)


def is_message_or_bad(frame: bytes) -> None:
    """A decoded frame holds exactly what the message says: encoded again it is the same value."""
    try:
        message = codec.decode(frame)
    except BadMessage:
        return
    assert type(message) in TYPES
    assert codec.encode(message) == msgpack.packb(msgpack.unpackb(frame))


@given(any_message)
def test_round_trip(message):
    """Every message comes back equal, and its parts in their own types."""
    again = codec.decode(codec.encode(message), type(message))
    assert (type(again), repr(again)) == (type(message), repr(message))


@pytest.mark.parametrize("cls", TYPES, ids=lambda cls: cls.__name__)
@given(data=st.data())
def test_wrong_direction(cls, data):
    """A frame is taken where its own kind is expected, and refused where every other kind is."""
    frame = codec.encode(data.draw(values_of(cls)))
    assert type(codec.decode(frame, cls)) is cls
    with pytest.raises(BadMessage):
        codec.decode(frame, *[other for other in TYPES if other is not cls])


@given(any_message, st.data())
def test_truncated(message, data):
    """No part of a frame, and no frame with more behind it, is a message."""
    frame = codec.encode(message)
    for cut in (frame[: data.draw(st.integers(0, len(frame) - 1))], frame + b"\x00"):
        with pytest.raises(BadMessage):
            codec.decode(cut)


@given(any_message, st.data())
def test_mutated(message, data):
    """With some bytes changed it is a BadMessage or another message, never an exception of another kind."""
    frame = bytearray(codec.encode(message))
    for _ in range(data.draw(st.integers(1, 4))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    is_message_or_bad(bytes(frame))


@given(st.binary(max_size=60))
def test_random_bytes(frame):
    """Random bytes are a BadMessage, or by a rare chance a message."""
    is_message_or_bad(frame)


@given(any_message, st.data())
def test_confused_types(message, data):
    """A value of another type at any place of a frame, however deep it lies, is refused."""
    value = msgpack.unpackb(codec.encode(message))
    place, index = value, data.draw(st.integers(0, len(value) - 1))
    while isinstance(place[index], list) and place[index] and data.draw(st.booleans()):
        place = place[index]
        index = data.draw(st.integers(0, len(place) - 1))
    place[index] = data.draw(anything)
    is_message_or_bad(msgpack.packb(value))


@given(anything)
def test_any_value(value):
    """Any MessagePack value at all, alone or under a known tag."""
    is_message_or_bad(msgpack.packb(value))
    for tag in range(len(TYPES)):
        is_message_or_bad(msgpack.packb([tag, value]))


REPORT = [TYPES.index(Report), int(State.READY), "text"]


@pytest.mark.parametrize(
    "value",
    [
        [TYPES.index(KvBatch), 2**63, 0, 0, []],
        [TYPES.index(KvBatch), True, 0, 0, []],
        [TYPES.index(KvBatch), 1.0, 0, 0, []],
        [TYPES.index(KvBatch), 0, 0, 0, "text"],
        [TYPES.index(KvBatch), 0, 0, 0, [[int(KvKind.REMOVED), bytes(31), b"", b"", b"", []]]],
        [TYPES.index(KvBatch), 0, 0, 0, [[int(KvKind.STORED), bytes(32), bytes(4), b"", bytes(16), []]]],
        [TYPES.index(KvBatch), 0, 0, 0, [[int(KvKind.STORED), bytes(32), bytes(4), bytes(32), bytes(15), []]]],
        [*REPORT, None],
        REPORT[:2],
        [REPORT[0], 99, "text"],
        [REPORT[0], True, "text"],
        [True, 0, b""],
        [-1],
        [len(TYPES)],
        [2**64 - 1],
        [[]],
        {0: 1},
        [TYPES.index(Report), int(State.READY), ["text"]],
        [TYPES.index(Report), int(State.READY), {"a": 1}],
    ],
    ids=repr,
)
def test_near_misses(value):
    """Wide ints, booleans as ints, wrong counts of fields and unknown tags are refused."""
    with pytest.raises(BadMessage):
        codec.decode(msgpack.packb(value))


@pytest.mark.parametrize(
    "frame",
    [
        b"\x91" * 100_000 + b"\x00",
        b"\x81\xa1a" * 100_000 + b"\x00",
        b"\xdd\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\xd6\xff" + b"\xff" * 4,
        b"\xc7\x05\xff" + b"\x00" * 5,
        b"\xc7\x0c\xff" + b"\xff" * 12,
        b"\xa2\xed\xa0",
        b"\x81\x90\x00",
        b"\x81\xcb" + b"\x00" * 8 + b"\x00",
        b"\xc1",
    ],
    ids=[
        "deep-lists",
        "deep-maps",
        "claims-4G-items",
        "claims-4-GiB",
        "claims-4G-pairs",
        "timestamp",
        "timestamp-of-5-bytes",
        "timestamp-out-of-range",
        "bad-utf-8",
        "list-as-key",
        "float-as-key",
        "reserved",
    ],
)
def test_hostile_frames(frame):
    """Frames made to hurt a decoder are bad messages, alone and as a field."""
    for hostile in (frame, bytes([0x93, REPORT[0], 1]) + frame):
        with pytest.raises(BadMessage):
            codec.decode(hostile)


def test_errors_show_no_content():
    """What is refused may hold text of a client: the error says what it is, not what it holds."""
    with pytest.raises(BadMessage) as caught:
        codec.decode(msgpack.packb([TYPES.index(KvBatch), "secret prompt", 0, 0, []]), KvBatch)
    assert "secret" not in str(caught.value)


def test_finish_comes_back_as_finish():
    """Numbers on the wire become members again."""
    message = messages.Abort(1, Finish.STOP, 5)
    assert codec.decode(codec.encode(message)).reason is Finish.STOP


SUBMIT = Submit(
    *((1, 2), (3, 4), 0, 4, bytes(DIGEST_BYTES), messages.CacheKeys()),
    *(Sampling(1.0, 0, 1.0, 0.0), Limits(5, 0, False, (), ((7,),)), 0, 0.0, b""),
    (Image("cat", 1, 3, b"data"),),
    remote=RemoteKv(True, False, "far:1", 7, bytes(8), 5, (6,)),
)
HELLO = Hello(10, 16, 8, 9, (2,))


@pytest.mark.parametrize(
    "change",
    [
        (SUBMIT, {"rids": ()}),
        (SUBMIT, {"rids": (1, 1)}),
        (SUBMIT, {"seeds": (3,)}),
        (SUBMIT, {"digests": b"short"}),
        (SUBMIT, {"timeout_s": -1.0}),
        (SUBMIT, {"mrope": b"short"}),
        (SUBMIT, {"prompt_tokens": 3}),
        (SUBMIT, {"generated_tokens": -1}),
        (SUBMIT, {"generated_tokens": 1}),
        (SUBMIT, {"generated_tokens": 5, "rids": (1,), "seeds": (3,)}),
        (SUBMIT.limits, {"min_tokens": 6}),
        (SUBMIT.limits, {"max_tokens": 2**31}),
        (SUBMIT.limits, {"max_tokens": -1}),
        (SUBMIT.limits, {"stop_sequences": ((),)}),
        (SUBMIT.sampling, {"biases": (1.0,)}),
        (SUBMIT.sampling, {"logprobs": MAX_LOGPROBS + 1}),
        (SUBMIT.sampling, {"prompt_logprobs": -2}),
        (SUBMIT.sampling, {"repetition_penalty": 0.0}),
        (SUBMIT.sampling, {"repetition_penalty": float("nan")}),
        (SUBMIT.sampling, {"presence_penalty": float("inf")}),
        (SUBMIT.sampling, {"frequency_penalty": float("nan")}),
        (SUBMIT, {"images": (Image("cat", 2, 3, b"data"),)}),
        (SUBMIT.remote, {"first_token": -2}),
        (SUBMIT.remote, {"drafts": (2**40,)}),
        (SUBMIT.remote, {"blocks": b"short"}),
        (SUBMIT.remote, {"transfer": -1}),
        (HELLO, {"num_blocks": 0}),
        (HELLO, {"max_model_len": -8}),
        (HELLO, {"eos_token_ids": (9,)}),
        (HELLO, {"state_slots": -1}),
    ],
    ids=lambda change: f"{type(change[0]).__name__}-{'-'.join(change[1])}",
)
def test_numbers_out_of_range(change):
    """Fields of the right types with numbers that make no sense are refused as well."""
    good, fields = change
    bad = object.__new__(type(good))
    for name in (field.name for field in dataclasses.fields(good)):
        object.__setattr__(bad, name, fields.get(name, getattr(good, name)))
    frame = HELLO if good is HELLO else SUBMIT
    values = msgpack.unpackb(codec.encode(frame if good is not frame else bad))
    if good is not frame:  # a part: put it where the good one stands
        part = msgpack.unpackb(msgpack.packb(bad, default=codec._fields))
        values[values.index(msgpack.unpackb(msgpack.packb(good, default=codec._fields)))] = part
    assert codec.decode(codec.encode(frame)) == frame
    with pytest.raises(BadMessage, match=" with "):
        codec.decode(msgpack.packb(values))


@pytest.mark.parametrize("name", ["seen", "generated"])
def test_columns_that_are_cut(name):
    """A row's history is a column of whole tokens."""
    new = NewRow(0, 0, SUBMIT.sampling, seen=bytes(4), generated=bytes(8))
    plan = messages.StepPlan(1, 0, 1, 1, 0, (new,))
    assert codec.decode(codec.encode(plan)) == plan
    object.__setattr__(new, name, b"short")
    with pytest.raises(BadMessage, match="bytes of tokens"):
        codec.decode(codec.encode(plan))
