"""Connections whose client sends no more: has it left, or does it still wait for its answer?

A client that has sent its request may close its sending side and still wait. A client that leaves looks the same: both
send FIN. What tells them apart is that a client that has left answers any further byte with a reset. So after FIN the
connection stays open and now and then one byte is sent that belongs to the answer in any case: first the letters of
"HTTP/1.1 ", which all answers begin with, and in a stream an empty comment. protocol.py owns one of these.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

_BEGINNING = b"HTTP/1.1 "
_COMMENT = b":\n\n"
"""A comment of an event stream. Only streams are sent in chunks, or until the connection is closed, here."""

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


class Probes:
    """What is sent to a client that sends no more, until its last answer is complete."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        transport: asyncio.Transport,
        flow: FlowControl,
        running: Callable[[], RequestResponseCycle | None],
    ) -> None:
        """`running` gives the response that is being made."""
        self._loop = loop
        self._transport = transport
        self._flow = flow
        self._running = running
        self._begun = _Begun(transport)
        self._timer: asyncio.TimerHandle | None = None
        self._delay_s = _FIRST_PROBE_S

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def send(self) -> None:
        """Send a byte that a client that has left answers with a reset, and come again."""
        cycle = self._running()
        if cycle is None or cycle.response_complete or self._transport.is_closing():
            return
        if not cycle.response_started:
            cycle.transport = self._begun  # type: ignore[assignment]
            self._begun.probe()
        else:
            if not self._flow.write_paused:  # else bytes wait already, on which the client's kernel answers
                self._comment(cycle)
            self._delay_s = min(self._delay_s, _MAX_PROBE_S)
        self._timer = self._loop.call_later(self._delay_s, self.send)
        self._delay_s *= 2

    def _comment(self, cycle: RequestResponseCycle) -> None:
        if cycle.chunked_encoding:
            self._transport.write(b"%x\r\n%s\r\n" % (len(_COMMENT), _COMMENT))
        elif not cycle.expected_content_length:
            self._transport.write(_COMMENT)
