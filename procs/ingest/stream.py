"""Sending an answer: event by event as text comes, or in one piece at the end. Speaks plain ASGI.

Before the first byte an error is still a status of its own (Refusal is raised); after it, it is the last
event. `send` waits while the client's connection is full, and meanwhile deltas merge in the mailbox.
"""

from __future__ import annotations

from starlette.types import Send

from .answers import Head, failure, usage, whole_answer
from .errors import Refusal
from .events import DONE, Events, error_event
from .live import LiveRequest, News, NewTokens
from .parts import Part, Parts
from .token_names import TokenNames
from .tools.deltas import Delta

_EVENT_STREAM = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]


async def send_stream(request: LiveRequest, head: Head, names: TokenNames, include_usage: bool, send: Send) -> None:
    """Send a request's text as it comes. Raises Refusal if it fails before there is any."""
    news = await _good_news(request)
    if request.gone:
        return
    await send({"type": "http.response.start", "status": 200, "headers": _EVENT_STREAM})
    try:
        parts = [Parts(choice, head.route, names) for choice in request.choices]
        await _send_events(request, news, parts, Events(head, len(parts), include_usage), send)
    except Refusal as refusal:
        await _send_piece(send, error_event(refusal), more=False)


async def _send_events(request: LiveRequest, news: list[News], parts: list[Parts], events: Events, send: Send) -> None:
    left = len(parts)
    while not request.gone:
        left -= sum(one.ending is not None for one in news)
        piece = "".join([events.of(one, await _part(parts[one.choice.index], one)) for one in news])
        if not left:
            await _send_piece(send, (piece + events.usage(request, parts)).encode() + DONE, more=False)
            return
        if piece:
            await _send_piece(send, piece.encode(), more=True)
        news = await _good_news(request)


async def _part(parts: Parts, news: News) -> Part:
    last = news.ending is not None
    return await parts.take(parts.read(news.delta, last), news.tokens, last)


async def send_whole(request: LiveRequest, head: Head, names: TokenNames, send: Send) -> None:
    """Send a request's text when all of it is there. Raises Refusal if it fails.

    It is read as it comes: 30 KB of calls at once would take 50 ms, for which all streams would wait.
    """
    parts = [Parts(choice, head.route, names) for choice in request.choices]
    deltas, tokens = [list[Delta]() for _ in parts], [list[NewTokens]() for _ in parts]
    left = len(parts)
    while left:
        news = await _good_news(request)
        if request.gone:
            return
        for one in news:
            deltas[one.choice.index] += parts[one.choice.index].read(one.delta, one.ending is not None)
            tokens[one.choice.index] += one.tokens
            left -= one.ending is not None
    whole = [await one.take(said, scored, True) for one, said, scored in zip(parts, deltas, tokens, strict=True)]
    content = whole_answer(head, request, whole, usage(request, parts)).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await _send_piece(send, content, more=False)


async def _good_news(request: LiveRequest) -> list[News]:
    """What is new of a request. Raises Refusal if that is a failure."""
    news = await request.news()
    for one in news:
        if one.ending is not None and (refusal := failure(one.choice, one.ending)) is not None:
            raise refusal
    return news


async def _send_piece(send: Send, piece: bytes, more: bool) -> None:
    await send({"type": "http.response.body", "body": piece, "more_body": more})
