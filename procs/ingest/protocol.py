"""uvicorn's HTTP protocol with what a public port needs beside it, one object for each connection.

Bounds on how large a head, how slow a request and how long a queue on one connection may be; errors of the protocol
in the shape of all others, after the answers that are due before them; wishes for other protocols (`Upgrade: h2c`),
which are passed over as HTTP allows; clients of HTTP/1.0 (old_http.py) and such as send no more (half_closed.py).
server.py has uvicorn make one of these for each connection.
"""

from __future__ import annotations

import asyncio
import http
import json
import uuid
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from ...common.machine import connection_limit
from .errors import Refusal, error_object
from .half_closed import Probes
from .old_http import until_close

MAX_OVERHEAD_BYTES = 1 << 20
"""What a request may take on the wire beside its head and eight times its body: the sizes of chunks, trailers."""

MAX_HEAD_BYTES = 65536
"""A request's line, headers and trailers; uvicorn itself sets no limit with httptools."""

_TOO_LARGE = f"the head of the request is larger than {MAX_HEAD_BYTES:,} bytes"

MAX_WAITING = 100
"""Requests that may wait on one connection for the answers before theirs (pipelining)."""

KEEP_ALIVE_S = 75
"""A connection on which no request is under way is closed after this."""

HEAD_S = 30.0
"""A request's line and headers must be there so long after their first byte."""

BODY_S = 300.0
"""And its body so long after them: for the largest one that is 1 Mbit/s."""

LINGER_S = 2.0
"""How long a client that was refused may go on sending before its connection is closed."""


class Protocol(HttpToolsProtocol):
    """One connection."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._in_head = True
        self._head_bytes = 0
        self._unparsed_bytes = 0
        self._overhead_bytes = 0
        self._running: RequestResponseCycle | None = None
        self._probes: Probes | None = None
        self._late_timer: asyncio.TimerHandle | None = None
        self._refusal: Refusal | None = None

    @property
    def _answering(self) -> bool:
        """Whether an answer is being made or sent."""
        return self._running is not None and not self._running.response_complete and not self._running.disconnected

    # From the first byte to the last

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        most = connection_limit()
        if len(self.connections) > most:
            self._refusal = Refusal(503, f"more than {most} connections are open")
            self._write_refusal(self._refusal)
            self.transport.close()
        else:
            self._expect_within(KEEP_ALIVE_S)

    def data_received(self, data: bytes) -> None:
        if self._refusal is not None:
            return  # what comes after bytes that are no request is none either
        began_before = self._in_head
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._go_on_without_upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserError as error:
            cause = error.__context__
            self._refuse(cause if isinstance(cause, Refusal) else Refusal(400, f"this is no HTTP request: {error}"))
        else:
            self._count(len(data), began_before and self._in_head)

    def _go_on_without_upgrade(self, rest: bytes) -> None:
        """Take a request that wishes for another protocol as one that does not."""
        method = self.parser.get_method()
        if method == b"CONNECT":
            self._refuse(Refusal(405, "CONNECT: this server is no proxy"))
            return
        lines = [b"%s %s HTTP/%s" % (method, self.url, self.parser.get_http_version().encode())]
        lines += [b"%s: %s" % header for header in self.headers if header[0] != b"upgrade"]
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does
        self.data_received(b"\r\n".join([*lines, b"", rest]))

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        if self._probes is not None:
            self._probes.stop()
        super().connection_lost(exc)
        # With pipelined requests uvicorn tells only the last one.
        if self._running is not None:
            self._leave(self._running)

    def _leave(self, cycle: RequestResponseCycle) -> None:
        """Tell an application that nobody waits for its answer."""
        if not cycle.response_complete:
            cycle.disconnected = True
            cycle.message_event.set()

    def eof_received(self) -> bool | None:  # type: ignore[override]
        """Whether the connection stays open: only while a whole request waits for its answer."""
        if self.cycle is None or self.cycle.response_complete or self.cycle.more_body:
            return None
        self.cycle.keep_alive = False
        self._probes = Probes(self.loop, self.transport, self.flow, lambda: self._running)
        self._probes.send()
        return True

    # What the parser finds

    def on_message_begin(self) -> None:
        if len(self.pipeline) >= MAX_WAITING:
            raise Refusal(400, f"more than {MAX_WAITING} requests wait on this connection")
        self._unset_keepalive_if_required()
        self._expect_within(HEAD_S)
        self._in_head = True
        self._head_bytes = self._unparsed_bytes = self._overhead_bytes = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._grow_head(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._grow_head(len(name) + len(value) + len(b": \r\n"))
        if self._in_head:  # else a trailer: behind the body nothing may be said that belongs to the head
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._unset_keepalive_if_required()  # which an answer set, if this head had begun before its end
        if not self.parser.should_upgrade():
            self._expect_within(BODY_S)
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._overhead_bytes -= 8 * len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        if not self.parser.should_upgrade():
            self._stop_waiting()
            super().on_message_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        if cycle.scope["http_version"] == "1.0":
            app = until_close(cycle, app)
        super()._start_asgi_task(cycle, app)

    # Bounds

    def _grow_head(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > MAX_HEAD_BYTES:
            raise Refusal(431, _TOO_LARGE)

    def _count(self, size: int, in_head: bool) -> None:
        """Count bytes of which the parser may have kept some without telling: of a header, of trailers."""
        if in_head:
            self._unparsed_bytes += size
            if self._unparsed_bytes > MAX_HEAD_BYTES:
                self._refuse(Refusal(431, _TOO_LARGE))
        elif not self._in_head:
            self._overhead_bytes += size
            if self._overhead_bytes > MAX_OVERHEAD_BYTES:
                self.transport.abort()  # trailers without end, which the parser would all keep

    def _expect_within(self, seconds: float) -> None:
        self._stop_waiting()
        self._late_timer = self.loop.call_later(seconds, self._on_late, seconds)

    def _stop_waiting(self) -> None:
        if self._late_timer is not None:
            self._late_timer.cancel()
            self._late_timer = None

    def _on_late(self, seconds: float) -> None:
        """What was expected has not come. While an earlier answer is sent nothing is read, and nobody is late."""
        if self._answering and (self._in_head or self._running is not self.cycle):
            self._expect_within(seconds)
        elif self.scope is None or (not self._in_head and self.cycle.response_complete):
            self.transport.close()
        else:
            self._refuse(Refusal(408, f"the request did not arrive within {seconds:g} s"))

    # Refusals of what is no request

    def _refuse(self, refusal: Refusal) -> None:
        """Answer bytes that are no request, after the requests before them, and close."""
        self._stop_waiting()
        self._refusal = refusal
        broken = self.cycle
        if broken is not None and broken.more_body and not broken.response_started:
            self.pipeline = type(self.pipeline)(entry for entry in self.pipeline if entry[0] is not broken)
            self._leave(broken)
        if not self._answering:
            self._send_refusal(refusal)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._refusal is not None and not self._answering:
            self._send_refusal(self._refusal)

    def _send_refusal(self, refusal: Refusal) -> None:
        """Write it, and give the client time to read it: closing a connection that has unread bytes may reset it."""
        if self.transport.is_closing():
            return
        self._write_refusal(refusal)
        self.transport.write_eof()
        self._late_timer = self.loop.call_later(LINGER_S, self.transport.close)

    def _write_refusal(self, refusal: Refusal) -> None:
        body = json.dumps(error_object(refusal.status, str(refusal))).encode()
        lines = [b"HTTP/1.1 %d %s" % (refusal.status, http.HTTPStatus(refusal.status).phrase.encode())]
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
            (b"x-request-id", uuid.uuid4().hex.encode()),
        ]
        lines += [b"%s: %s" % header for header in [*self.server_state.default_headers, *headers]]
        self.transport.write(b"\r\n".join([*lines, b"", body]))
