"""The process that asks: takes orders from standard input, a line each, and writes a line for each request that ended.

A program of its own, so that neither the progress bar nor another client's answers stand in the way of its clock.
An empty line says that an order is done. `clients.py` starts it.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Any

import aiohttp
import setproctitle
import uvloop

from .load import Order, Target
from .prompts import Prompt
from .record import Record

_LONGEST_S = 3600.0
"""A request that takes longer has failed."""

_SHOWN_CHARS = 300


class Answer:
    """What has come of an answer so far."""

    def __init__(self) -> None:
        self.chunks_s: list[float] = []
        self.input_tokens = 0
        self.output_tokens = 0
        self.done = False
        self.error: str | None = None
        self.refused = False

    async def read(self, content: aiohttp.StreamReader) -> None:
        """Take in a stream of events, as its bytes come: line by line aiohttp takes twice the time for each event."""
        rest = b""
        async for data in content.iter_any():
            now_s = time.monotonic()
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                self._take(line, now_s)
        self._take(rest, time.monotonic())

    def _take(self, line: bytes, now_s: float) -> None:
        if not line.startswith(b"data:"):
            return
        data = line[5:].strip()
        if data == b"[DONE]":
            self.done = True
            return
        event = json.loads(data)
        if "error" in event:
            self.error = str(event["error"])[:_SHOWN_CHARS]
        if usage := event.get("usage"):
            self.input_tokens, self.output_tokens = usage["prompt_tokens"], usage["completion_tokens"]
        if any(map(_has_token, event.get("choices", ()))):
            self.chunks_s.append(now_s)

    def refuse(self, response: aiohttp.ClientResponse, text: str) -> None:
        """Take in an answer that is an error."""
        self.refused = response.status == HTTPStatus.TOO_MANY_REQUESTS and "Retry-After" in response.headers
        self.error = "refused" if self.refused else f"HTTP {response.status}: {text}"[:_SHOWN_CHARS]

    def record(self, begun_s: float, ended_s: float) -> Record:
        error = self.error
        if error is None and not (self.done and self.chunks_s):
            error = "the answer broke off" if self.chunks_s else "an answer without a token"
        tokens = self.output_tokens or len(self.chunks_s)
        return Record(begun_s, ended_s, tuple(self.chunks_s), self.input_tokens, tokens, error, self.refused)


def _has_token(choice: dict[str, Any]) -> bool:
    """A last chunk without text only tells why the answer ended; others without text hold half a character."""
    return bool(choice.get("text")) or choice.get("finish_reason") is None


async def ask(session: aiohttp.ClientSession, order: Order, prompt: Prompt, begun_s: float | None = None) -> Record:
    """Send a prompt and read the answer. `begun_s` is when it was to be sent, if that was not now."""
    body = {
        "model": order.target.model,
        "prompt": prompt,
        "max_tokens": order.output_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    begun_s = time.monotonic() if begun_s is None else begun_s
    answer = Answer()
    try:
        async with session.post("v1/completions", json=body) as response:
            if response.status == 200:
                await answer.read(response.content)
            else:
                answer.refuse(response, await response.text())
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        answer.error = f"{type(error).__name__}: {error}"[:_SHOWN_CHARS]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        answer.error = f"a stream that is none of the OpenAI API: {error!r}"[:_SHOWN_CHARS]
    return answer.record(begun_s, time.monotonic())


def open_session(target: Target) -> aiohttp.ClientSession:
    """Connections to a server, one for each request, as many as it takes."""
    unix = target.url.startswith("unix:")
    connector: aiohttp.BaseConnector
    if unix:
        connector = aiohttp.UnixConnector(target.url.removeprefix("unix:"), limit=0, force_close=True)
    else:
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
    return aiohttp.ClientSession(
        "http://localhost/" if unix else target.url.rstrip("/") + "/",
        connector=connector,
        timeout=aiohttp.ClientTimeout(total=_LONGEST_S),
        headers={} if target.api_key is None else {"Authorization": f"Bearer {target.api_key}"},
    )


async def carry_out(order: Order, tell: Callable[[Record], None]) -> None:
    """Send what an order asks for, and tell of each request as it ends."""
    async with open_session(order.target) as session:
        await _until(order.begin_s)
        if order.arrivals_s is None:
            rest = iter(order.prompts)
            await asyncio.gather(*(_stream(session, order, rest, tell) for _ in range(order.concurrency)))
        else:
            due = zip(order.prompts, order.arrivals_s, strict=True)
            await asyncio.gather(*(_arrive(session, order, prompt, at_s, tell) for prompt, at_s in due))


async def _stream(
    session: aiohttp.ClientSession, order: Order, rest: Iterator[Prompt], tell: Callable[[Record], None]
) -> None:
    """One of the streams of a closed loop: the next prompt of the rest, until there is none."""
    for prompt in rest:
        tell(await ask(session, order, prompt))


async def _arrive(
    session: aiohttp.ClientSession, order: Order, prompt: Prompt, at_s: float, tell: Callable[[Record], None]
) -> None:
    begun_s = order.begin_s + at_s
    await _until(begun_s)
    tell(await ask(session, order, prompt, begun_s))


async def _until(at_s: float) -> None:
    await asyncio.sleep(max(0.0, at_s - time.monotonic()))


def main() -> None:
    setproctitle.setproctitle("fourstroke: client")
    for line in sys.stdin:
        uvloop.run(carry_out(Order.read(line), lambda record: _say(record.line)))
        _say("")


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
