"""Answers to HTTP/1.0, which knows no chunks: what has no length ends with the connection. protocol.py uses it.

nginx speaks 1.0 to the servers behind it unless it is told otherwise, and streams must pass through it.
"""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle


def until_close(cycle: RequestResponseCycle, app: ASGIApp) -> ASGIApp:
    """An application whose answers to this one request have no chunks. uvicorn closes the connection after them."""
    cycle.waiting_for_100_continue = False  # 1.0 does not know that either

    async def plain(scope: Scope, receive: Receive, send: Send) -> None:
        unbounded = False

        async def send_plain(message: Message) -> None:
            nonlocal unbounded
            if message["type"] == "http.response.start":
                names = [name.lower() for name, _ in message.get("headers", ())]
                unbounded = b"content-length" not in names
                if unbounded:
                    cycle.chunked_encoding = False
            elif unbounded:  # uvicorn counts what may still come: always just this piece
                cycle.expected_content_length = len(message.get("body", b""))
            await send(message)

        await app(scope, receive, send_plain)

    return plain
