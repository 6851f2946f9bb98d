"""Where a JSON value ends, in text that comes in pieces. Its text is given on as it comes; nothing is built of it.

Structure is checked as far as it takes to find the end: strings, brackets, and that nothing stands outside of strings
that JSON does not have there. A value may still be none, as {"a" 1} is: whoever uses it parses it.
"""

from __future__ import annotations

import json
import re

from .source import Sink, Source, Steps

SPACE = re.compile(r"[ \t\r\n]*")
_SCALAR = re.compile(r"[-+.0-9A-Za-z]*")
_INSIDE = re.compile(r'(?:[-+.0-9a-zE,: \t\r\n]|"(?:[^"\\]|\\.)*")*', re.DOTALL)
"""What stands in objects and arrays beside brackets. Strings that are all there are taken in one step."""

_PLAIN = re.compile(r'[^"\\]*')
_CLOSERS = {"{": "}", "[": "]"}


class Malformed(Exception):
    """The text does not go on as a value, or ends in the middle of it."""


def read_value(source: Source, sink: Sink) -> Steps[None]:
    """Take one value, without white space around it. Raises Malformed before the character that is wrong."""
    closers: list[str] = []
    while True:
        if closers:
            yield from source.run(_INSIDE, sink)
        char = yield from source.peek()
        if char == '"':
            yield from read_string(source, sink)
        elif char in _CLOSERS:
            closers.append(_CLOSERS[char])
            sink(source.char())
        elif closers and char == closers[-1]:
            closers.pop()
            sink(source.char())
        elif char and not closers and _SCALAR.fullmatch(char):
            yield from source.run(_SCALAR, sink)
        else:
            raise Malformed
        if not closers:
            return


def read_string(source: Source, sink: Sink) -> Steps[None]:
    """Take a string with its quotes. Raises Malformed if there is none, or it does not end."""
    if (yield from source.peek()) != '"':
        raise Malformed
    sink(source.char())
    while True:
        yield from source.run(_PLAIN, sink)
        char = yield from source.peek()
        if not char:
            raise Malformed
        sink(source.char())
        if char == '"':
            return
        if not (yield from source.peek()):
            raise Malformed
        sink(source.char())


def parsed(text: str) -> object:
    """The value of a JSON text; line ends may stand in strings, as models write them. Raises Malformed."""
    try:
        return json.loads(text, strict=False)
    except (ValueError, RecursionError):
        raise Malformed from None
