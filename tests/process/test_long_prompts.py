"""A long prompt never delays a stream: tokens come while it is read, tokenised, hashed and refused."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator

import httpx
import pytest

from .server import Server

WORDS = "the quick brown fox jumps over a lazy dog " * 15_000
LONG = {
    "text": ("/v1/completions", {"prompt": WORDS[:600_000]}),
    "tokenize": ("/tokenize", {"prompt": WORDS[:600_000]}),
    "ids": ("/v1/completions", {"prompt": [1234] * 2_000_000}),
}


@pytest.mark.parametrize("kind", LONG)
def test_tokens_come_meanwhile(exact_server: Server, kind: str) -> None:
    """Between the sending of the prompt and the answer to it a stream gets several tokens."""
    path, body = LONG[kind]
    content = json.dumps(body | {"max_tokens": 1})
    answered = threading.Event()

    def post() -> None:
        try:
            httpx.post(exact_server.url + path, content=content, timeout=120)
        finally:
            answered.set()

    stream = _stream(exact_server)
    next(stream)
    thread = threading.Thread(target=post)
    thread.start()
    meanwhile = 0
    while not answered.is_set():
        next(stream)
        meanwhile += not answered.is_set()
    thread.join()
    stream.close()
    assert meanwhile >= 4


def _stream(server: Server) -> Iterator[str]:
    """The lines of a stream without end."""
    fields = {"prompt": "One", "max_tokens": 8000, "temperature": 0, "ignore_eos": True, "stream": True}
    with httpx.stream("POST", f"{server.url}/v1/completions", json=fields, timeout=120) as response:
        yield from (line for line in response.iter_lines() if line)
