"""Wires between processes: ZeroMQ PUSH/PULL over sockets in a folder that only this user can enter.

Decided here, once: the receiver binds and the sender connects, so either end may start or restart first;
queues are bounded (HWM); closing waits a bounded time (LINGER); a frame has a bounded size. What arrives
is decoded and checked against the types that the wire may carry; any other frame is counted, logged once
and dropped. `memory_wire` makes the same pair of ends without a socket, for tests.

A process that dies is replaced, and the next has another life: a number that rises and stands on the board. A frame
begins with two, the life that its sender has and the one that it believes its receiver to have. What comes from another
life than the sender has now, or was meant for another than the receiver's, is passed over: sockets hold
frames of the dead for as long as they like. A process in a later life than its first says Began before all else.

An Outbox never blocks and never loses a message in silence: what does not fit the socket waits in the
outbox, in order, and `flush` sends it when the socket has room. A sender looks at `waiting` to stop
making more.
"""

from __future__ import annotations

import logging
import os
import struct
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

import zmq

from ..common.errors import BadMessage, ResourceError
from . import codec
from .messages import Began

log = logging.getLogger("fourstroke")

HIGH_WATER_MARK = 1024
"""Messages that may wait in a socket."""

LINGER_MS = 500
MAX_FRAME_BYTES = 64 << 20
MAX_PATH_BYTES = 107
"""What the kernel allows for the path of a socket."""


LIVES = struct.Struct("<II")
"""How a frame begins: the life of the sender, and that of the receiver."""


class Lives(NamedTuple):
    """Which life this end of a wire has, and what tells that of the other end at any time."""

    own: int
    peers: Callable[[], int]


FIRST_LIVES = Lives(0, lambda: 0)
"""Those of processes that are never replaced."""


class Socket(Protocol):
    """The part of a ZeroMQ socket that wires use; the in-memory twin has it too."""

    def send(self, data: bytes, flags: int = 0) -> Any: ...

    def recv_multipart(self, flags: int = 0) -> list[bytes]: ...

    def close(self, linger: int | None = None) -> None: ...


class Outbox:
    """The sending end of a wire."""

    def __init__(self, socket: Socket, peer: str, lives: Lives = FIRST_LIVES) -> None:
        self.socket = socket
        self.peer = peer
        self._lives = lives
        self._queue: deque[bytes] = deque()
        self._meant_for = 0

    @property
    def waiting(self) -> int:
        """Messages that the socket had no room for yet."""
        return len(self._queue)

    def send(self, message: object) -> None:
        """Send a message, or keep it until `flush` finds room."""
        life = self._lives.peers()
        if life != self._meant_for:  # what waits was meant for one that is dead
            self._queue.clear()
            self._meant_for = life
        self._queue.append(LIVES.pack(self._lives.own, life) + codec.encode(message))
        self.flush()

    def flush(self) -> bool:
        """Send what waits, as far as the socket has room; true if nothing waits any more."""
        while self._queue:
            try:
                self.socket.send(self._queue[0], zmq.NOBLOCK)
            except zmq.Again:
                return False
            self._queue.popleft()
        return True

    def close(self) -> None:
        self.socket.close(LINGER_MS)


class Inbox:
    """The receiving end of a wire, which yields only messages of the expected types."""

    def __init__(self, socket: Socket, peer: str, *expected: type, lives: Lives = FIRST_LIVES) -> None:
        """Began is passed over unless it is expected."""
        self.socket = socket
        self.peer = peer
        self.bad_frames = 0
        self._expected = expected
        self._known = (*expected, Began)
        self._lives = lives

    @property
    def senders_life(self) -> int:
        """The life that the sender has now; all that `drain` yields is from it."""
        return self._lives.peers()

    def drain(self, limit: int = HIGH_WATER_MARK) -> Iterator[Any]:
        """The messages that have arrived, at most `limit`, without waiting."""
        for _ in range(limit):
            try:
                frames = self.socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            try:
                message = self._decode(frames)
            except BadMessage as error:
                self.reject(error)
                continue
            if isinstance(message, self._expected):
                yield message

    def _decode(self, frames: list[bytes]) -> object:
        """The message in a frame; None if it belongs to another life. Raises BadMessage."""
        if len(frames) != 1 or len(frames[0]) < LIVES.size:
            raise BadMessage(f"{len(frames)} frames of {sum(map(len, frames))} bytes")
        frame = frames[0]
        lives, known = LIVES.unpack_from(frame), (self._lives.peers(), self._lives.own)
        if lives[0] > known[0] or lives[1] > known[1]:
            raise BadMessage(f"lives {lives}, and those of today are {known}")
        if lives != known:
            return None
        return codec.decode(memoryview(frame)[LIVES.size :], *self._known)

    def reject(self, error: BadMessage) -> None:
        """Count a message that cannot be used; the first one of a wire is logged."""
        self.bad_frames += 1
        if self.bad_frames == 1:
            log.warning("dropped a bad message from %s: %s; later ones are only counted", self.peer, error)

    def close(self) -> None:
        self.socket.close(0)


def address(folder: str, sender: str, receiver: str) -> str:
    """Where the wire from one process to another is bound."""
    path = f"{folder}/{sender}-{receiver}"
    if len(os.fsencode(path)) > MAX_PATH_BYTES:
        raise ResourceError(f"the socket path {path} is longer than {MAX_PATH_BYTES} bytes")
    return f"ipc://{path}"


def open_outbox(context: zmq.Context[Any], where: str, peer: str, lives: Lives = FIRST_LIVES) -> Outbox:
    """Connect the sending end of the wire at an address."""
    socket = context.socket(zmq.PUSH)
    socket.sndhwm = HIGH_WATER_MARK
    socket.linger = LINGER_MS
    socket.connect(where)
    return Outbox(socket, peer, lives)


def open_inbox(context: zmq.Context[Any], where: str, peer: str, *expected: type, lives: Lives = FIRST_LIVES) -> Inbox:
    """Bind the receiving end of the wire at an address."""
    socket = context.socket(zmq.PULL)
    socket.rcvhwm = HIGH_WATER_MARK
    socket.linger = 0
    socket.maxmsgsize = MAX_FRAME_BYTES
    socket.bind(where)
    return Inbox(socket, peer, *expected, lives=lives)


class _MemorySocket:
    """One bounded queue with the two ends of a socket pair."""

    def __init__(self, high_water_mark: int) -> None:
        self._frames: deque[list[bytes]] = deque()
        self._limit = high_water_mark

    def send(self, data: bytes, flags: int = 0) -> None:
        if len(self._frames) >= self._limit:
            raise zmq.Again
        self._frames.append([data])

    def recv_multipart(self, flags: int = 0) -> list[bytes]:
        if not self._frames:
            raise zmq.Again
        return self._frames.popleft()

    def close(self, linger: int | None = None) -> None:
        self._frames.clear()


def memory_wire(peer: str, *expected: type, high_water_mark: int = HIGH_WATER_MARK) -> tuple[Outbox, Inbox]:
    """Both ends of a wire inside one process."""
    socket = _MemorySocket(high_water_mark)
    return Outbox(socket, peer), Inbox(socket, peer, *expected)
