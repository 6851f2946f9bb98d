"""uvicorn's HTTP protocol with some things mended: half-closed connections, endless heads and trailers, error bodies.

A client that has sent its request may close its sending side and still wait for the answer. A client that
leaves looks the same: both send FIN. What tells them apart is that a client that has left answers any
further byte with a reset. So after FIN the connection stays open and now and then one byte is sent that
belongs to the answer in any case: first the letters of "HTTP/1.1 ", which all answers begin with, and in a
stream an empty comment.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from ...common.machine import connection_limit
from .errors import error_object

MAX_OVERHEAD_BYTES = 1 << 20
"""What a request may take on the wire beside its head and eight times its body: the sizes of chunks, trailers."""

MAX_HEAD_BYTES = 65536
"""A request's line and headers; uvicorn itself sets no limit with httptools."""

_BEGINNING = b"HTTP/1.1 "
_COMMENT = b"3\r\n:\n\n\r\n"
"""A chunk with a comment of an event stream. Only streams are sent in chunks here."""

_FIRST_PROBE_S = 0.25
_MAX_PROBE_S = 1.0


class _Begun:
    """A transport for a response of which some first bytes were sent already."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._sent = 0

    def probe(self) -> None:
        """Send one more byte of what all responses begin with, as long as there is one."""
        self._transport.write(_BEGINNING[self._sent : self._sent + 1])
        self._sent = min(self._sent + 1, len(_BEGINNING))

    def write(self, data: bytes) -> None:
        self._transport.write(data[self._sent :])
        self._sent = 0

    def close(self) -> None:
        self._transport.close()

    def is_closing(self) -> bool:
        return self._transport.is_closing()


class Protocol(HttpToolsProtocol):
    """One connection."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._in_head = True
        self._head_bytes = 0
        self._overhead_bytes = 0
        self._running: RequestResponseCycle | None = None
        self._begun: _Begun | None = None
        self._probe_timer: asyncio.TimerHandle | None = None
        self._probe_delay_s = _FIRST_PROBE_S

    # Bounds

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        most = connection_limit()
        if len(self.connections) > most:
            self._refuse(503, f"more than {most} connections are open")

    def data_received(self, data: bytes) -> None:
        began_before = self._in_head
        super().data_received(data)
        if began_before and self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
                self._refuse(431, f"the head of the request is larger than {MAX_HEAD_BYTES:,} bytes")
        if not self._in_head:
            self._overhead_bytes += len(data)
            if self._overhead_bytes > MAX_OVERHEAD_BYTES:
                self.transport.abort()  # trailers without end, which the parser would all keep

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = True
        self._head_bytes = self._overhead_bytes = 0

    def on_body(self, body: bytes) -> None:
        self._overhead_bytes -= 8 * len(body)
        super().on_body(body)

    def on_headers_complete(self) -> None:
        self._in_head = False
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, msg)

    def _refuse(self, status: int, message: str) -> None:
        """Answer bytes that are no request, and close."""
        body = json.dumps(error_object(status, message)).encode()
        head = (
            f"HTTP/1.1 {status} \r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\nconnection: close"
        )
        self.transport.write(head.encode() + b"\r\n\r\n" + body)
        self.transport.close()

    # Half-closed connections

    def eof_received(self) -> bool | None:  # type: ignore[override]
        """Whether the connection stays open: only while a whole request waits for its answer."""
        if self.cycle is None or self.cycle.response_complete or self.cycle.more_body:
            return None
        self.cycle.keep_alive = False
        self._probe()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        if self._probe_timer is not None:
            self._probe_timer.cancel()
        super().connection_lost(exc)
        # With pipelined requests uvicorn tells only the last one.
        if self._running is not None and not self._running.response_complete:
            self._running.disconnected = True
            self._running.message_event.set()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def _probe(self) -> None:
        """Send a byte that a client that has left answers with a reset, and come again."""
        cycle = self._running
        if cycle is None or cycle.response_complete or self.transport.is_closing():
            return
        if not cycle.response_started:
            if self._begun is None:
                self._begun = _Begun(self.transport)
            cycle.transport = self._begun  # type: ignore[assignment]
            self._begun.probe()
        elif cycle.chunked_encoding:
            if not self.flow.write_paused:  # else bytes wait already, on which the client's kernel answers
                self.transport.write(_COMMENT)
            self._probe_delay_s = min(self._probe_delay_s, _MAX_PROBE_S)
        self._probe_timer = self.loop.call_later(self._probe_delay_s, self._probe)
        self._probe_delay_s *= 2
