"""Reading long JSON in a thread without stopping the others.

json.loads is one call that lets go of the interpreter only at its end: 24 MB of token ids took 400 ms, in which no
stream went on, in whatever thread it ran. Here objects and lists are read in Python, and runs of numbers and long
strings piece by piece, each by a call of some 100 us. The result, and what is refused, are those of json.loads; only
nesting may be no more than half as deep.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from json.decoder import JSONArray, JSONDecodeError, scanstring  # type: ignore[attr-defined]
from json.scanner import py_make_scanner  # type: ignore[attr-defined]
from typing import Any

_NUMBERS = re.compile(r"[-+.eE0-9, \t\n\r]{1,8192}")

_PIECE = re.compile(
    r'(?:[^"\\\x00-\x1f]{1,1024}|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[0-9a-fA-F]{4}|\\u[0-9a-fA-F]{4}|\\[^u]){1,64}'
)
"""Part of a string that ends neither in an escape nor in a surrogate pair, and has no control character."""


def patient_loads(text: str, parse_constant: Callable[[str], Any]) -> Any:
    """What json.loads makes of a text. Raises JSONDecodeError, RecursionError, or ValueError for a huge integer."""
    return _Decoder(parse_constant=parse_constant).decode(text)


class _Decoder(json.JSONDecoder):
    """The standard decoder, which reads lists and strings by what stands here."""

    def __init__(self, parse_constant: Callable[[str], Any]) -> None:
        super().__init__(parse_constant=parse_constant, parse_int=_ascii(int), parse_float=_ascii(float))
        self.parse_array = _array
        self.parse_string = _string
        self.scan_once = py_make_scanner(self)


def _ascii(read: Callable[[str], Any]) -> Callable[[str], Any]:
    """A reader of numbers that refuses other digits than JSON's, which the decoder in Python lets through."""

    def checked(text: str) -> Any:
        if not text.isascii():
            raise ValueError(f"{text!r:.40} is no number")
        return read(text)

    return checked


def _array(where: tuple[str, int], scan_once: Callable[[str, int], tuple[Any, int]]) -> tuple[list[Any], int]:
    """The list whose inside begins at a place, and where it ends."""
    text, end = where
    values: list[Any] = []
    while numbers := _NUMBERS.match(text, end):
        run = numbers[0].rpartition(",")[0]
        if not run or run.isspace():
            break
        try:
            values += json.loads(f"[{run}]")
        except JSONDecodeError:
            break  # as will be said of it below, with its true place
        end += len(run) + 1
    rest, after = JSONArray((text, end), scan_once)
    if values and not rest:
        raise JSONDecodeError("Expecting value", text, end)  # a comma with nothing behind it
    values += rest
    return values, after


def _string(text: str, begin: int, strict: bool = True) -> tuple[str, int]:
    """The string whose inside begins at a place, and where it ends."""
    pieces, end = [], begin
    while (piece := _PIECE.match(text, end)) and not text.startswith('"', piece.end()):
        pieces.append(scanstring(piece[0] + '"', 0, strict)[0])
        end = piece.end()
    last, after = scanstring(text, end, strict)
    return "".join([*pieces, last]), after
