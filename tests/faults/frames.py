"""Frames that are no use to their receiver: bytes that are no message, and messages that make no sense."""

from __future__ import annotations

import enum
import random
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgpack

from fourstroke.common.errors import BadMessage
from fourstroke.common.types import Finish, KvKind, State, TransferAction, TransferOutcome
from fourstroke.ipc import codec
from fourstroke.ipc.messages import (
    Abort,
    Began,
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


class Fate(enum.Enum):
    """What becomes of a frame: it is counted and dropped, it is passed over, or it is taken as what it says."""

    BAD = enum.auto()
    PASSED_OVER = enum.auto()
    MESSAGE = enum.auto()


class Wire(NamedTuple):
    """What a wire may carry, and the lives of the processes at its ends now: the sender's, the receiver's."""

    expected: tuple[type, ...]
    lives: tuple[int, int] = (0, 0)


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
    Began(),
)
_WRONG = (None, True, 1.5, "text", b"bytes", [], [[[]]], {}, {"key": 1}, (1 << 64) - 1, msgpack.ExtType(5, b"x"))
_SIZES = (*(0, 1, 3, 7, 8, 20, 300) * 10, 100_000)
_EXTREME = (-1, 1 << 31, (1 << 63) - 1, -(1 << 63))


def garbage(dice: random.Random, wire: Wire) -> Iterator[Frame]:
    """Endless frames of which none is a message to the receiver as it lives now."""
    kinds = [_noise, _cut, _confused, _misdirected, _many_parts, _unborn]
    kinds += [_dead] if any(wire.lives) else []
    while True:
        frame = dice.choice(kinds)(dice, wire)
        if fate(frame, wire) is not Fate.MESSAGE:
            yield frame


def fate(frame: Frame, wire: Wire) -> Fate:
    """What must become of a frame."""
    if len(frame) > 1 or len(frame[0]) < LIVES.size:
        return Fate.BAD
    told = LIVES.unpack_from(frame[0])
    if told[0] > wire.lives[0] or told[1] > wire.lives[1]:
        return Fate.BAD
    if told != wire.lives:
        return Fate.PASSED_OVER
    try:
        message = codec.decode(frame[0][LIVES.size :], *wire.expected, Began)
    except BadMessage:
        return Fate.BAD
    return Fate.MESSAGE if isinstance(message, wire.expected) else Fate.PASSED_OVER


def senseless(dice: random.Random, wire: Wire) -> Iterator[Frame]:
    """Endless frames that have the expected types in every place, but numbers out of this world."""
    known = [SENSELESS[kind] for kind in wire.expected if kind in SENSELESS]
    while known:
        value = msgpack.unpackb(codec.encode(dice.choice(known)))
        places = [place for place in _places(value) if type(place[0][place[1]]) is int]
        for holder, index in dice.sample(places, dice.randint(0, min(2, len(places)))):
            holder[index] = dice.choice(_EXTREME)
        yield [LIVES.pack(*wire.lives) + msgpack.packb(value)]


def is_message(frame: Frame, wire: Wire, kind: type) -> bool:
    """Whether a frame is a message of this type for the receiver as it lives now."""
    return fate(frame, Wire((kind,), wire.lives)) is Fate.MESSAGE


def _noise(dice: random.Random, _wire: Wire) -> Frame:
    return [dice.randbytes(dice.choice(_SIZES))]


def _cut(dice: random.Random, wire: Wire) -> Frame:
    (frame,) = _valid(dice, wire.lives)
    return [frame[: dice.randrange(len(frame))]]


def _confused(dice: random.Random, wire: Wire) -> Frame:
    """One value, however deep it lies, is of another type."""
    value = msgpack.unpackb(codec.encode(dice.choice(_VALID)))
    holder, index = dice.choice(list(_places(value)) or [(value, 0)])
    holder[index] = dice.choice(_WRONG)
    return [LIVES.pack(*wire.lives) + msgpack.packb(value)]


def _misdirected(dice: random.Random, wire: Wire) -> Frame:
    """A message that may be right elsewhere, or has a field too many."""
    value = msgpack.unpackb(codec.encode(dice.choice(_VALID)))
    return [LIVES.pack(*wire.lives) + msgpack.packb(value + [dice.choice(_WRONG)] * dice.randint(0, 1))]


def _many_parts(dice: random.Random, wire: Wire) -> Frame:
    return _valid(dice, wire.lives) * dice.randint(2, 5)


def _unborn(dice: random.Random, wire: Wire) -> Frame:
    """A message that may be right, of a life that has not begun."""
    later = [life + dice.choice((0, 1, 7, 1 << 30)) for life in wire.lives]
    return _valid(dice, later)


def _dead(dice: random.Random, wire: Wire) -> Frame:
    """A message that may be right, of a life that is over."""
    return _valid(dice, [dice.randint(0, life) for life in wire.lives])


def _valid(dice: random.Random, lives: Sequence[int]) -> Frame:
    return [LIVES.pack(*lives) + codec.encode(dice.choice(_VALID))]


def _places(value: list[Any]) -> Iterator[tuple[list[Any], int]]:
    """Every place in nested lists but that of the tag, as a list and an index."""
    for index, item in enumerate(value):
        if isinstance(item, list):
            yield from ((item, inner) for inner in range(len(item)) if not isinstance(item[inner], list))
            yield from _places(item)
        elif index:
            yield value, index
