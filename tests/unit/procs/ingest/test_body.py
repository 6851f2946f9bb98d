"""Bodies: what is not one JSON object in UTF-8 is refused, and nothing that is refused is a crash."""

import asyncio
import contextlib
import gzip
from collections.abc import AsyncIterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.requests import Request

from fourstroke.common.errors import InvalidRequest
from fourstroke.common.types import Finish
from fourstroke.procs.ingest.body import MAX_BODY_BYTES, _check_kind, parse
from fourstroke.procs.ingest.errors import Refusal

from .surroundings import COMPLETIONS, Surroundings, error

PIECE = 1 << 20


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"x"',
        b"\xff\xfe{}",
        b'{"a": "\xff"}',
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"a": "\\ud800"}',
        b'{"a": "x\\uDC00"}',
        b'{"n": ' + b"9" * 5000 + b"}",
        b'{"a": 1} x',
        '{"a": 1}'.encode("utf-16"),
        b"\xef\xbb\xbf{}",
    ],
    ids=lambda data: repr(data[:12]),
)
def test_refused(data: bytes) -> None:
    """Each of these is no request."""
    with pytest.raises(InvalidRequest):
        parse(data)


def test_accepted() -> None:
    """A pair of surrogates is a character; the last of two equal members counts; null is absent."""
    body = parse(b'{"a": "\\ud83d\\ude00", "b": 1, "b": 2, "c": null}')
    assert (body["a"], body["b"], body.get("c")) == ("😀", 2, None)


@pytest.mark.parametrize("value", ["NaN", "-Infinity", "[1, {}, [Infinity]]", '{"x": {"y": NaN}}'])
def test_odd_numbers_are_found_anywhere(value: str) -> None:
    """NaN and Infinity are refused however deep they are, and the member is named."""
    with pytest.raises(InvalidRequest) as raised:
        parse(b'{"good": [1.5], "metadata": ' + value.encode() + b"}").check_numbers()
    assert raised.value.param == "metadata"
    parse(b'{"metadata": {"text": "NaN", "large": 1e308}}').check_numbers()


def test_too_large_when_told(around: Surroundings) -> None:
    """A Content-Length above the limit is refused before any of the body is read."""

    async def run() -> None:
        async def never() -> AsyncIterator[bytes]:
            raise AssertionError("the body was read")
            yield b""

        async with around.client() as client:
            headers = {"Content-Length": str(MAX_BODY_BYTES + 1)}
            error(await client.post(COMPLETIONS, content=never(), headers=headers), 413)

    asyncio.run(run())


def test_too_large_when_not_told(around: Surroundings) -> None:
    """Without a length, reading stops where the limit is passed."""
    read = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal read
        while True:
            read += PIECE
            yield b" " * PIECE

    async def run() -> None:
        async with around.client() as client:
            error(await client.post(COMPLETIONS, content=endless()), 413)

    asyncio.run(run())
    assert read <= MAX_BODY_BYTES + 2 * PIECE


@pytest.mark.parametrize(
    "kind, status",
    [
        ("application/json", 200),
        ("Application/JSON ; Charset=UTF-8", 200),
        ('application/json; charset="utf-8"', 200),
        ("application/problem+json", 200),
        ("text/plain", 415),
        ("application/x-www-form-urlencoded", 415),
        ("multipart/form-data; boundary=x", 415),
        ("text/json", 415),
        ("json", 415),
        ("", 415),
        ("application/json; charset=utf-16", 415),
        ("application/json; charset=iso-8859-1", 415),
    ],
)
def test_kinds(around: Surroundings, kind: str, status: int) -> None:
    """A body that is said to be no JSON, or none in UTF-8, is not looked at; one of which nothing is said is."""
    response = asyncio.run(around.post(COMPLETIONS, {"prompt": "Hi", "max_tokens": 1}, **{"Content-Type": kind}))
    assert response.status_code == status
    if status != 200:
        error(response, status)


@settings(deadline=None, max_examples=200)
@given(st.text(st.characters(max_codepoint=255, exclude_categories=["Cc"]), max_size=20))
def test_any_kind(tail: str) -> None:
    """Whatever is said of a body, it is taken or refused."""
    for told in (tail, f"application/json;{tail}", f"application/json; charset{tail}"):
        scope = {"type": "http", "headers": [(b"content-type", told.encode("latin-1"))]}
        with contextlib.suppress(Refusal):
            _check_kind(Request(scope))


def test_empty_body_is_of_no_kind(around: Surroundings) -> None:
    """Where a body may be left out, an empty one of any kind is none."""
    around.engine.by_hand = True

    async def run() -> None:
        asking = asyncio.create_task(around.post("/reset_prefix_cache", b"", **{"Content-Type": "text/plain"}))
        await around.engine.until(1, around.engine.resets)
        around.engine.end(around.engine.resets[0].rid, Finish.STOP)
        assert (await asking).json() == {"status": "reset"}

    asyncio.run(run())


HUGE = ["1e400", "-1e400", "9" * 100_000, "0." + "9" * 100_000, "1" + "0" * 309, "-0", "1E+2"]


@pytest.mark.parametrize("number", HUGE, ids=lambda number: number[:6])
@pytest.mark.parametrize("name", ["temperature", "max_tokens", "seed", "logit_bias", "stop_token_ids", "user"])
def test_odd_numbers(around: Surroundings, name: str, number: str) -> None:
    """A number of any size and spelling, wherever it stands, is taken or refused as a request that must be changed."""
    value = {"logit_bias": f'{{"1": {number}}}', "stop_token_ids": f"[{number}]"}.get(name, number)
    body = f'{{"prompt": "Hi", "max_completion_tokens": 1, "{name}": {value}}}'
    response = asyncio.run(around.post(COMPLETIONS, body.encode()))
    assert response.status_code in (200, 400)


def test_compressed(around: Surroundings) -> None:
    """A compressed body is refused, not inflated."""
    body = gzip.compress(b'{"prompt": "Hi"}')
    error(asyncio.run(around.post(COMPLETIONS, body, **{"Content-Encoding": "gzip"})), 415)
