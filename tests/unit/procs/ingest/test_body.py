"""Bodies: what is not one JSON object in UTF-8 is refused, and nothing that is refused is a crash."""

import asyncio
import gzip
from collections.abc import AsyncIterator

import pytest

from fourstroke.common.errors import InvalidRequest
from fourstroke.procs.ingest.body import MAX_BODY_BYTES, parse

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


def test_compressed(around: Surroundings) -> None:
    """A compressed body is refused, not inflated."""
    body = gzip.compress(b'{"prompt": "Hi"}')
    error(asyncio.run(around.post(COMPLETIONS, body, **{"Content-Encoding": "gzip"})), 415)
