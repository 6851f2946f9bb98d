"""What an operation of a template makes, in characters, before it is carried out; and which operations there are not.

Knows no environment and keeps no account: sandbox.py does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, ItemsView, KeysView, ValuesView
from typing import Any

from jinja2.exceptions import SecurityError
from jinja2.utils import Namespace

REMOVED_FILTERS = frozenset(
    ["batch", "center", "filesizeformat", "format", "forceescape", "pprint", "random"]
    + ["slice", "striptags", "sum", "urlize", "wordwrap", "xmlattr"]
)
"""Filters that chat templates have no use for and that make much of little."""

REMOVED_METHODS = frozenset({"encode", "expandtabs", "format_map", "maketrans", "to_bytes", "translate"})

_ITEM_CHARS = 32
"""An item of a list takes 8 bytes, and looking at it as long as copying many letters."""

_MAX_BITS = 1 << 16
_MAX_WIDTH = 1000
"""Of padding and indentation."""

_MAX_DEPTH = 64
"""Of what is written with indentation, where each line costs as much as it lies deep."""

_WIDE = re.compile(r"%(\([^()]*\))?[^a-zA-Z%(]*(\d{4}|\*)|%\([^()]*\(")
_WIDE_FIELD = re.compile(r":[^{}]*(\d{4}|\{)")

_FIELD_MARKS = {"%": "%", "format": "{"}
"""What each field of a layout begins with: any of them may write any operand."""


def size(value: Any) -> int:
    """How many characters a value itself takes."""
    if isinstance(value, str):
        return len(value)
    return _ITEM_CHARS * len(value) if isinstance(value, list | tuple | dict) else 0


def written(value: Any, most: int) -> int:
    """At least how many characters a value has as text, or any number above `most`; it may hold itself many times."""
    chars, waiting = 0, [value]
    while waiting and chars <= most:
        item = waiting.pop()
        if isinstance(item, str):
            chars += len(item)
        elif isinstance(item, dict):
            waiting.extend([*item, *item.values()])
        elif isinstance(item, list | tuple | KeysView | ValuesView | ItemsView):
            waiting.extend(item)
            chars += _ITEM_CHARS * len(item)
        elif isinstance(item, Namespace):
            return most + 1
        elif isinstance(item, int):
            chars += item.bit_length() // 3
        chars += _ITEM_CHARS
    return chars


def price(name: str, args: tuple[Any, ...], kwargs: dict[str, Any], most: int) -> int:
    """What an operator, filter or method of a string makes of its operands. Raises SecurityError.

    It may be any number above `most` if it is above.
    """
    chars = 0
    if name in _WRITES:
        chars = sum([written(value, most) for value in (*args, *kwargs.values())])
        if name in _FIELD_MARKS and isinstance(args[0], str):
            chars *= max(1, args[0].count(_FIELD_MARKS[name]))
        if chars > most:
            return chars
    if (check := _PRICES.get(name)) is not None:
        chars += check(*args, **kwargs)
    return chars


def _plus(left: Any, right: Any) -> int:
    return size(left) + size(right)


def _times(left: Any, right: Any) -> int:
    if isinstance(left, int) and isinstance(right, int):
        return _bits(left.bit_length() + right.bit_length())
    pairs = ((left, right), (right, left))
    return max(size(one) * count if isinstance(count, int) else 0 for one, count in pairs)


def _power(base: Any, exponent: Any) -> int:
    whole = isinstance(base, int) and isinstance(exponent, int)
    return _bits(base.bit_length() * exponent) if whole else 0


def _bits(count: int) -> int:
    if count > _MAX_BITS:
        raise SecurityError("it computes with numbers that are too large")
    return 0


def _percent(left: Any, _: Any) -> int:
    return _padded(not isinstance(left, str) or _WIDE.search(left) is None)


def _format(layout: str, *args: Any, **kwargs: Any) -> int:
    return _padded(_WIDE_FIELD.search(layout) is None)


def _pad(_: str, width: int, *args: Any) -> int:
    return _padded(width <= _MAX_WIDTH)


def _padded(little: bool) -> int:
    if not little:
        raise SecurityError("it pads too far")
    return _MAX_WIDTH


def _indent(text: str, width: int | str = 4, *args: Any, **kwargs: Any) -> int:
    spaces = len(width) if isinstance(width, str) else width
    return _padded(spaces <= _MAX_WIDTH) and spaces * (1 + text.count("\n"))


def _tojson(value: Any, *args: Any, **kwargs: Any) -> int:
    """With an indentation each item is a line that begins with as many spaces as it lies deep."""
    options = [option for option in (*args, *kwargs.values()) if option is not None]
    if not options:
        return 0
    spaces = max(option if isinstance(option, int) else written(option, 256) for option in options)
    lines, deep = _lines_and_depth(value)
    return _padded(spaces <= 16 + _ITEM_CHARS and deep <= _MAX_DEPTH) + lines * spaces * deep


def _lines_and_depth(value: Any) -> tuple[int, int]:
    """How many items there are in a value, and how deep they lie, up to one more than may be."""
    lines, deep, level = 0, 0, [value]
    while level and deep <= _MAX_DEPTH:
        lines, deep = lines + len(level), deep + 1
        level = [
            inner
            for item in level
            if isinstance(item, list | tuple | dict)
            for inner in (item.values() if isinstance(item, dict) else item)
        ]
    return lines, deep


def _round(_: Any, precision: int = 0, *args: Any, **kwargs: Any) -> int:
    """10 to the power of the precision is computed."""
    return _padded(precision <= _MAX_WIDTH)


def _join(values: list[Any], d: Any = "", *args: Any, **kwargs: Any) -> int:
    return len(values) * size(d)


def _replace(s: Any, old: Any, new: Any, *args: Any, **kwargs: Any) -> int:
    return str(s).count(str(old)) * size(new)


_PRICES: dict[str, Callable[..., int]] = {
    "+": _plus,
    "*": _times,
    "**": _power,
    "%": _percent,
    "format": _format,
    "center": _pad,
    "ljust": _pad,
    "rjust": _pad,
    "zfill": _pad,
    "indent": _indent,
    "tojson": _tojson,
    "join": _join,
    "replace": _replace,
    "round": _round,
}

_WRITES = frozenset(
    ["%", "format", "join", "tojson", "string", "safe", "escape", "e", "trim", "replace", "upper", "lower", "title"]
    + ["capitalize", "truncate", "urlencode", "wordcount"]
    + ["sort", "unique", "min", "max", "groupby", "dictsort"]  # these do so to compare
)
"""What makes text of its operands."""
