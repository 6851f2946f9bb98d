"""Messages to bytes and back: MessagePack arrays `[tag, field, ...]`, checked field by field on decode.

A frame that is not exactly a message of the expected kind raises BadMessage, whatever it holds; nothing
is built from it. The checkers are derived once from the annotations of the dataclasses.
"""

from __future__ import annotations

import dataclasses
import enum
import operator
import types
import typing
from collections.abc import Callable
from typing import Any

import msgpack

from ..common.errors import BadMessage
from . import messages

_INT64 = range(-(2**63), 2**63)

Reader = Callable[[Any], Any]


def encode(message: object) -> bytes:
    """The frame of a message, or of a Ticket."""
    kind = type(message)
    packed = msgpack.packb((_TAGS[kind], *_FIELDS[kind](message)), use_bin_type=True, default=_fields)
    return typing.cast(bytes, packed)


def decode(frame: bytes | memoryview, *expected: type) -> Any:
    """The message in a frame, which must be of one of the expected types. Raises BadMessage."""
    try:
        value = msgpack.unpackb(frame, raw=False, strict_map_key=True)
    except (ValueError, TypeError, msgpack.UnpackException, RecursionError) as error:
        raise BadMessage(f"not MessagePack: {type(error).__name__}") from None
    if type(value) is not list or not value or type(value[0]) is not int:
        raise BadMessage("not a tagged array")
    cls = _TYPES.get(value[0])
    if cls is None or (expected and cls not in expected):
        raise BadMessage(f"tag {value[0]} is not expected here")
    return _READERS[cls](value[1:])


def _fields(part: object) -> tuple[Any, ...]:
    """The fields of a part of a message."""
    return _FIELDS[type(part)](part)


def _fields_of(cls: Any) -> Callable[[Any], tuple[Any, ...]]:
    """A function that gives the fields of a message, or of a part of one, in their order."""
    names = [field.name for field in dataclasses.fields(cls)]
    if len(names) > 1:
        return operator.attrgetter(*names)
    return lambda message: tuple([getattr(message, name) for name in names])


def _reader(hint: Any) -> Reader:
    """A function that checks a decoded value against a type and gives it back in that type."""
    if isinstance(hint, types.UnionType):
        (kind,) = [part for part in typing.get_args(hint) if part is not types.NoneType]
        read = _reader(kind)
        return lambda value: None if value is None else read(value)
    if typing.get_origin(hint) is tuple:
        return _tuple_reader(_reader(typing.get_args(hint)[0]))
    if issubclass(hint, enum.IntEnum):
        return _enum_reader(hint)
    if dataclasses.is_dataclass(hint):
        return _message_reader(hint)
    return _scalar_reader(hint)


def _scalar_reader(kind: type) -> Reader:
    def read(value: Any) -> Any:
        if type(value) is not kind:
            raise BadMessage(f"{type(value).__name__} where {kind.__name__} belongs")
        if kind is int and value not in _INT64:
            raise BadMessage("an integer of more than 64 bits")
        return value

    return read


def _enum_reader(kind: type[enum.IntEnum]) -> Reader:
    members = {int(member): member for member in kind}

    def read(value: Any) -> Any:
        if type(value) is not int or value not in members:
            raise BadMessage(f"{value!r:.40} is no {kind.__name__}")
        return members[value]

    return read


def _tuple_reader(read_item: Reader) -> Reader:
    def read(value: Any) -> Any:
        if type(value) is not list:
            raise BadMessage(f"{type(value).__name__} where a list belongs")
        return tuple([read_item(item) for item in value])

    return read


def _message_reader(cls: Any) -> Reader:
    hints = typing.get_type_hints(cls)
    readers = [_reader(hints[field.name]) for field in dataclasses.fields(cls)]

    def read(values: Any) -> Any:
        if type(values) is not list or len(values) != len(readers):
            raise BadMessage(f"not the fields of {cls.__name__}")
        fields = [read_field(value) for read_field, value in zip(readers, values, strict=True)]
        try:
            return cls(*fields)
        except ValueError as error:
            raise BadMessage(f"{cls.__name__} with {error}") from None

    return read


_MESSAGES: tuple[type, ...] = typing.get_args(messages.Message) + (messages.Ticket,)
_PARTS: tuple[type, ...] = typing.get_args(messages.Part)
_FIELDS = {cls: _fields_of(cls) for cls in (*_MESSAGES, *_PARTS)}
_TAGS = {cls: tag for tag, cls in enumerate(_MESSAGES)}
_TYPES = dict(enumerate(_MESSAGES))
_READERS = {cls: _message_reader(cls) for cls in _MESSAGES}
