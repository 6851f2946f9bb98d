"""Reading a request's body: said to be JSON, bounded in size, strict UTF-8, strict JSON, one object. Knows no field.

Python's JSON accepts more than the standard; what it lets through is looked for here: NaN and Infinity,
lone surrogates (which no UTF-8 can carry on), nesting that ends in a RecursionError.

A long body is read in a thread, piece by piece (patient_json.py), so that streams go on meanwhile.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
from email.message import Message
from typing import Any

from starlette.requests import Request

from ...common.errors import InvalidRequest
from .errors import Refusal
from .patient_json import patient_loads
from .values import strings

MAX_BODY_BYTES = 32 << 20

_JSON = "application/json"
_JSON_KIND = re.compile(r"application/(.+\+)?json")
_CHARSETS = ("utf-8", "utf8", "us-ascii")

INLINE_BYTES = 1 << 15
"""So many bytes of JSON are read in at most 0.5 ms."""

_WINDOW = 1 << 18

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


async def read_body(request: Request) -> bytes:
    """The body's bytes. Raises Refusal as soon as it is clear that they are too many."""
    told = request.headers.get("content-length", "")
    if told != "0":
        _check_kind(request)
    if told.isdecimal() and int(told[:20]) > MAX_BODY_BYTES:
        raise _too_large()
    pieces, size = [], 0
    async for piece in request.stream():
        size += len(piece)
        if size > MAX_BODY_BYTES:
            raise _too_large()
        pieces.append(piece)
    return b"".join(pieces)


def _check_kind(request: Request) -> None:
    """Refuse a body that is said to be anything but JSON in UTF-8. One of which nothing is said is taken for that.

    So no page of another site can have a browser send a form here without asking first (CORS).
    """
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise Refusal(415, f"Content-Encoding {encoding[:40]!r} is not accepted; send the body as it is")
    told = request.headers.get("content-type", _JSON)
    if told == _JSON:
        return
    kind = Message()
    kind["Content-Type"] = told
    if not _JSON_KIND.fullmatch(kind.get_content_type()):
        raise Refusal(415, f"Content-Type {told[:80]!r} is not accepted; send {_JSON}")
    if (charset := kind.get_content_charset("utf-8")) not in _CHARSETS:
        raise Refusal(415, f"charset {charset[:40]!r} is not accepted; JSON is sent in UTF-8")


def _too_large() -> Refusal:
    return Refusal(413, f"the body is larger than {MAX_BODY_BYTES:,} bytes", code="body_too_large")


async def read_object(request: Request) -> Body:
    """The JSON object that is a request's body. Raises Refusal or InvalidRequest."""
    data = await read_body(request)
    return parse(data) if len(data) <= INLINE_BYTES else await asyncio.to_thread(parse, data)


class Body(dict[str, Any]):
    """A request's members. `null` is the same as absent: `get` gives None for both."""

    odd_member: str | None = None
    """A member that holds a NaN or an Infinity, however deep."""

    def check_numbers(self) -> None:
        """Refuse a NaN or an Infinity in a member that nobody has looked at."""
        if self.odd_member is not None:
            raise InvalidRequest(f"{self.odd_member} holds NaN or Infinity, which JSON does not have", self.odd_member)


def parse(data: bytes) -> Body:
    """The JSON object in a body. Raises InvalidRequest."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"the body is not UTF-8: byte {error.start}") from None
    found_odd = []

    def constant(name: str) -> float:
        found_odd.append(name)
        return float(name)

    loads = json.loads if len(data) <= INLINE_BYTES else patient_loads
    try:
        value = loads(text, parse_constant=constant)
        if _spells_surrogate(text):
            _encode_all(value)
    except UnicodeEncodeError:
        raise InvalidRequest("the body holds half of a surrogate pair, which is no character") from None
    except json.JSONDecodeError as error:
        raise InvalidRequest(f"the body is not JSON: {error}") from None
    except (ValueError, RecursionError) as error:
        reason = "too deeply nested" if isinstance(error, RecursionError) else str(error)
        raise InvalidRequest(f"the body is not JSON that can be read: {reason}") from None
    if not isinstance(value, dict):
        raise InvalidRequest(f"the body must be a JSON object, not {type(value).__name__}")
    body = Body(value)
    if found_odd:
        body.odd_member = next((name for name, member in value.items() if _holds_odd_number(member)), None)
    return body


def _spells_surrogate(text: str) -> bool:
    """Whether a text has an escape of half of a surrogate pair, mostly of one that is whole."""
    starts = range(0, len(text), _WINDOW)
    return any(_SURROGATE.search(text, start, start + _WINDOW + 3) is not None for start in starts)


def _encode_all(value: Any) -> None:
    """Raise UnicodeEncodeError if a string in a value, however deep, has half of a surrogate pair."""
    for string in strings(value):
        string.encode("utf-8")


def _holds_odd_number(value: Any) -> bool:
    """Whether a NaN or an Infinity is in a value, however deep. Without recursion: the depth is a client's choice."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, float) and not math.isfinite(item):
            return True
        if isinstance(item, dict):
            waiting.extend(item.values())
        elif isinstance(item, list):
            waiting.extend(item)
    return False
