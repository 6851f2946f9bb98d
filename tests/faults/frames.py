"""Frames that are no use to their receiver: bytes that are no message, and messages that make no sense."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import msgpack

from fourstroke.common.errors import BadMessage
from fourstroke.common.types import Finish, KvKind, State, TransferAction, TransferOutcome
from fourstroke.ipc import codec
from fourstroke.ipc.messages import (
    Abort,
    CacheKeys,
    Detail,
    Drain,
    Emit,
    Ending,
    Endings,
    Hello,
    KvBatch,
    KvChange,
    KvTransfer,
    Limits,
    NewRow,
    Opened,
    Report,
    ResetCache,
    RowError,
    Sampling,
    StepDone,
    StepPlan,
    Submit,
    Text,
    TransferReport,
)
from fourstroke.ipc.wire import LIVES

Frame = list[bytes]
"""What is sent at once; a message is one part."""

_NOBODY = -12345
_NOWHERE = 1 << 40
_SAMPLING = Sampling(1.0, 0, 1.0, 0.0, (5, 6), (1.0, -1.0))
_EMPTY = b"\0" * 8, b"\0" * 4

SENSELESS = {
    Submit: Submit(
        (_NOBODY,), (7,), _NOWHERE, 5, b"", CacheKeys(), _SAMPLING, Limits(9, 1, False, (3, 4)), 0, 0.0, b"ticket"
    ),
    ResetCache: ResetCache(_NOBODY, False, b"ticket"),
    Abort: Abort(_NOBODY, Finish.ABORT, 0),
    Hello: Hello(100, 16, 2048, 49152, (2,)),
    StepPlan: StepPlan(_NOBODY, 99, 2, 3, 4, (NewRow(99, 7, _SAMPLING, 5, (2, 3)),)),
    KvTransfer: KvTransfer(_NOBODY, 0, TransferAction.CANCEL),
    TransferReport: TransferReport(_NOBODY, 0, TransferOutcome.SENT),
    StepDone: StepDone(_NOBODY, 0, (RowError(99, "cause"),)),
    Emit: Emit(
        (Opened(_NOBODY, 0, b"ticket"),),
        *_EMPTY,
        _NOWHERE,
        3,
        Endings(b"\0" * 8, b"\2", b"\0" * 4, (Detail(_NOBODY, "detail"),)),
    ),
    Text: Text(*_EMPTY, ("text", "text"), b"\0" * 7, (Ending(_NOBODY, Finish.STOP, None, 3, 1, "detail"),)),
    KvBatch: KvBatch(-7, 0, 0, (KvChange(KvKind.CLEARED),)),
}
"""A message of each kind that its receiver can see to be none of its business."""

_VALID = (
    *SENSELESS.values(),
    Report(State.READY, "ready"),
    Drain(),
)
_WRONG = (None, True, 1.5, "text", b"bytes", [], [[[]]], {}, {"key": 1}, (1 << 64) - 1, msgpack.ExtType(5, b"x"))
_EXTREME = (-1, 1 << 31, (1 << 63) - 1, -(1 << 63))


def garbage(dice: random.Random, expected: tuple[type, ...]) -> Iterator[Frame]:
    """Endless frames of which none is a message of the expected types."""
    while True:
        frame = dice.choice((_noise, _cut, _confused, _misdirected, _many_parts))(dice)
        if len(frame) > 1 or _is_bad(frame[0], expected):
            yield frame


def _first_life(payload: bytes) -> bytes:
    """A frame from a process that nobody has replaced, to one alike."""
    return LIVES.pack(0, 0) + payload


def senseless(dice: random.Random, expected: tuple[type, ...]) -> Iterator[Frame]:
    """Endless frames that have the expected types in every place, but numbers out of this world."""
    known = [SENSELESS[kind] for kind in expected if kind in SENSELESS]
    while known:
        value = msgpack.unpackb(codec.encode(dice.choice(known)))
        places = [place for place in _places(value) if type(place[0][place[1]]) is int]
        for holder, index in dice.sample(places, dice.randint(0, min(2, len(places)))):
            holder[index] = dice.choice(_EXTREME)
        yield [_first_life(msgpack.packb(value))]


def is_message(frame: Frame, *expected: type) -> bool:
    """Whether a frame is a message of one of these types."""
    return len(frame) == 1 and not _is_bad(frame[0], expected)


def _is_bad(frame: bytes, expected: tuple[type, ...]) -> bool:
    try:
        codec.decode(frame[LIVES.size :], *expected)
    except BadMessage:
        return True
    return False


def _noise(dice: random.Random) -> Frame:
    return [dice.randbytes(dice.choice((0, 1, 3, 20, 300, 100_000)))]


def _cut(dice: random.Random) -> Frame:
    frame = _first_life(codec.encode(dice.choice(_VALID)))
    return [frame[: dice.randrange(len(frame))]]


def _confused(dice: random.Random) -> Frame:
    """One value, however deep it lies, is of another type."""
    value = msgpack.unpackb(codec.encode(dice.choice(_VALID)))
    holder, index = dice.choice(list(_places(value)) or [(value, 0)])
    holder[index] = dice.choice(_WRONG)
    return [_first_life(msgpack.packb(value))]


def _misdirected(dice: random.Random) -> Frame:
    """A message that may be right elsewhere, or has a field too many."""
    value = msgpack.unpackb(codec.encode(dice.choice(_VALID)))
    return [_first_life(msgpack.packb(value + [dice.choice(_WRONG)] * dice.randint(0, 1)))]


def _many_parts(dice: random.Random) -> Frame:
    return [_first_life(codec.encode(dice.choice(_VALID)))] * dice.randint(2, 5)


def _places(value: list[Any]) -> Iterator[tuple[list[Any], int]]:
    """Every place in nested lists but that of the tag, as a list and an index."""
    for index, item in enumerate(value):
        if isinstance(item, list):
            yield from ((item, inner) for inner in range(len(item)) if not isinstance(item[inner], list))
            yield from _places(item)
        elif index:
            yield value, index
