"""Sending an answer: event by event as text comes, or in one piece at the end. Speaks plain ASGI.

Before the first byte an error is still a status of its own (Refusal is raised); after it, it is the last
event. `send` waits while the client's connection is full, and meanwhile deltas merge in the mailbox.
"""

from __future__ import annotations

import json

from starlette.types import Send

from .answers import Head, failure, whole_answer
from .errors import Refusal
from .events import DONE, Events, error_event
from .live import LiveRequest, News

_EVENT_STREAM = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]


async def send_stream(request: LiveRequest, head: Head, include_usage: bool, send: Send) -> None:
    """Send a request's text as it comes. Raises Refusal if it fails before there is any."""
    events = Events(head, len(request.choices), include_usage)
    news = await request.news()
    _raise_failure(news)
    if request.gone:
        return
    await send({"type": "http.response.start", "status": 200, "headers": _EVENT_STREAM})
    left = len(request.choices)
    while not request.gone:
        try:
            _raise_failure(news)
        except Refusal as refusal:
            await _send_piece(send, error_event(refusal), more=False)
            return
        left -= sum(one.ending is not None for one in news)
        piece = "".join([events.of(one) for one in news])
        if not left:
            await _send_piece(send, (piece + events.usage(request)).encode() + DONE, more=False)
            return
        await _send_piece(send, piece.encode(), more=True)
        news = await request.news()


async def send_whole(request: LiveRequest, head: Head, send: Send) -> None:
    """Send a request's text when all of it is there. Raises Refusal if it fails."""
    texts = [""] * len(request.choices)
    left = len(request.choices)
    while left:
        news = await request.news()
        if request.gone:
            return
        _raise_failure(news)
        for choice, delta, ending in news:
            texts[choice.index] += delta
            left -= ending is not None
    content = json.dumps(whole_answer(head, request, texts), separators=(",", ":")).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await _send_piece(send, content, more=False)


def _raise_failure(news: list[News]) -> None:
    for choice, _, ending in news:
        if ending is not None and (refusal := failure(choice, ending)) is not None:
            raise refusal


async def _send_piece(send: Send, piece: bytes, more: bool) -> None:
    await send({"type": "http.response.body", "body": piece, "more_body": more})
