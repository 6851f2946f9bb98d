"""The publisher's sockets to the world: PUB for what happens, ROUTER for what was missed. Neither ever blocks.

Both are bound. Their queues are bounded as well; a frame to the ROUTER may have no more bytes than a request needs.
"""

from __future__ import annotations

import zmq

from ...common.endpoints import port_of
from ...common.errors import ResourceError
from ...ipc.keep_alive import keep_alive
from ...ipc.replay import live_frames
from .answers import Message
from .replays import ReaderGone

LAST_WORDS_MS = 1000
"""So long what was published may still be on its way when the publisher ends."""

_REPLAY_QUEUE = 1000
"""Messages that may wait for one reader of a replay; the rest waits in the replay."""

_REQUEST_BYTES = 256
_LARGE = 1 << 16
"""Payloads from this size on are not copied to be sent."""


def _bind(socket: zmq.Socket[bytes], what: str, endpoint: str) -> None:
    keep_alive(socket)
    try:
        socket.bind(endpoint)
    except zmq.ZMQError as error:
        socket.close(0)
        raise ResourceError(f"cannot {what} KV events at {endpoint}: {error.strerror}") from None


def bound_port(socket: zmq.Socket[bytes]) -> int:
    """The TCP port to which a socket is bound; 0 if it has none."""
    return port_of(socket.getsockopt_string(zmq.LAST_ENDPOINT).rstrip("\0")) or 0


class PubSocket:
    """Where batches are published."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], endpoint: str, topic: bytes, hwm: int) -> None:
        self._topic = topic
        self.socket = context.socket(zmq.PUB)
        self.socket.sndhwm = hwm
        self.socket.linger = LAST_WORDS_MS
        self.socket.setsockopt(zmq.XPUB_NODROP, 1)
        _bind(self.socket, "publish", endpoint)

    def send(self, number: int, payload: bytes) -> bool:
        """Send a batch to all whose queues have room. False if one had none: he is passed over until he has."""
        frames = live_frames(self._topic, number, payload)
        copy = len(payload) < _LARGE
        try:
            self.socket.send_multipart(frames, zmq.NOBLOCK, copy)
            return True
        except zmq.Again:
            self.socket.setsockopt(zmq.XPUB_NODROP, 0)
            self.socket.send_multipart(frames, zmq.NOBLOCK, copy)
            self.socket.setsockopt(zmq.XPUB_NODROP, 1)
            return False


class ReplaySocket:
    """Where replays are asked for and answered."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], endpoint: str) -> None:
        self.socket = context.socket(zmq.ROUTER)
        self.socket.router_mandatory = 1
        self.socket.sndhwm = self.socket.rcvhwm = _REPLAY_QUEUE
        self.socket.maxmsgsize = _REQUEST_BYTES
        self.socket.linger = 0
        _bind(self.socket, "replay", endpoint)

    def receive(self) -> Message | None:
        try:
            return self.socket.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return None

    def send(self, reader: bytes, message: Message) -> bool:
        try:
            self.socket.send_multipart([reader, *message], zmq.NOBLOCK, copy=len(message[-1]) < _LARGE)
        except zmq.Again:
            return False
        except zmq.ZMQError as error:
            if error.errno == zmq.EHOSTUNREACH:
                raise ReaderGone from None
            raise
        return True
