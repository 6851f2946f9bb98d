"""Subscribers to the KV events of one rank, for routers in Python: one that blocks, and one for asyncio.

    with KvSubscriber("tcp://10.0.0.7:5557", "tcp://10.0.0.7:5558") as events:
        for item in events:
            if isinstance(item, Received):
                index.apply(item.batch)

What there is to iterate over, beside batches in their order, is in follower.py: restarts, losses, silence. The stream
never ends and never raises for what others send.
"""

from __future__ import annotations

import math
import time
from collections import deque
from types import TracebackType
from typing import Any, Self

import zmq
import zmq.asyncio

from .follower import Follower, Item, Received, Silent, Unreadable
from .keep_alive import keep_alive, ping
from .replay import request_frames

ANSWER_TIMEOUT_S = 10.0
"""A replay of which nothing has come for so long is asked for again, and given up in the end."""

QUEUE = 10_000
"""So many messages wait in a socket; then the publisher notices that this subscriber is slow."""

_HEARTBEATS = 3
_AT_ONCE = 1000


class _Connection:
    """The sockets of a subscriber and what has come of them. Nothing here waits."""

    def __init__(self, pub: str, replay: str, topic: str, rank: int, heartbeat_s: float) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._replay = replay
        self._rank = rank
        self._silence_s = _HEARTBEATS * heartbeat_s or math.inf
        self.items: deque[Item] = deque()
        self._follower = Follower(replays=bool(replay))
        self._live = self._context.socket(zmq.SUB)
        self._live.rcvhwm = QUEUE
        keep_alive(self._live)
        ping(self._live)
        self._monitor: Any = self._live.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        self._live.subscribe(topic)
        self._live.connect(pub)
        self._answers: zmq.Socket[bytes] | None = self._dealer() if replay else None
        self._heard_s = self._answered_s = time.monotonic()
        self._send()

    @property
    def sockets(self) -> list[Any]:
        """What to wait for until `receive` has something to do."""
        return [self._live, self._monitor, *([self._answers] if self._answers else [])]

    @property
    def timeout_s(self) -> float:
        """How long it may take until `receive` has something to do though nothing has come."""
        due_s = self._heard_s + self._silence_s
        if self._follower.asking:
            due_s = min(due_s, self._answered_s + ANSWER_TIMEOUT_S)
        return max(0.0, due_s - time.monotonic())

    def receive(self) -> None:
        """Take in what has come."""
        while self._monitor.poll(0):
            self._monitor.recv_multipart()
            self._follower.doubt()
            self._send()
        for _ in range(_AT_ONCE):
            frames = _received(self._live)
            if frames is None:
                break
            self._heard_s = time.monotonic()
            self._take(self._follower.live(frames))
        self._receive_answers()
        self._look_at_the_clock()

    def _receive_answers(self) -> None:
        for _ in range(_AT_ONCE):
            frames = _received(self._answers) if self._answers else None
            if frames is None:
                return
            self._answered_s = time.monotonic()
            self._take(self._follower.replayed(frames))

    def _look_at_the_clock(self) -> None:
        now = time.monotonic()
        if self._follower.asking and now - self._answered_s >= ANSWER_TIMEOUT_S:
            self._take(self._follower.gave_up())
        if now - self._heard_s >= self._silence_s:
            self._heard_s = now
            self.items.append(Silent(self._silence_s))

    def _take(self, items: list[Item]) -> None:
        for item in items:
            if isinstance(item, Received) and item.batch.rank != self._rank:
                item = Unreadable(item.number, f"a batch of rank {item.batch.rank}")
            self.items.append(item)
        self._send()

    def _send(self) -> None:
        if self._follower.renew and self._answers is not None:
            self._answers.close(0)
            self._answers = self._dealer()
        self._follower.renew = False
        for start in self._follower.requests:
            assert self._answers is not None
            self._answered_s = time.monotonic()
            self._answers.send_multipart(request_frames(start), zmq.DONTWAIT)
        self._follower.requests.clear()

    def _dealer(self) -> zmq.Socket[bytes]:
        socket = self._context.socket(zmq.DEALER)
        socket.rcvhwm = QUEUE
        keep_alive(socket)
        ping(socket)
        socket.connect(self._replay)
        return socket

    def close(self) -> None:
        self._live.disable_monitor()
        self._context.destroy(linger=0)


def _received(socket: zmq.Socket[bytes]) -> list[bytes] | None:
    try:
        return socket.recv_multipart(zmq.DONTWAIT)
    except zmq.Again:
        return None


class KvSubscriber:
    """Follows the publisher of one rank at `pub`, with `replay` for what was missed ("": nothing can be had).

    `rank` is the one that its batches must have; `heartbeat_s` how often it lets itself be heard at least, 0 if it does
    not. It is for one thread.
    """

    def __init__(self, pub: str, replay: str = "", topic: str = "", rank: int = 0, *, heartbeat_s: float = 5.0) -> None:
        self._connection = _Connection(pub, replay, topic, rank, heartbeat_s)

    def poll(self, timeout_s: float = math.inf) -> Item | None:
        """The next item, or None if none comes in time."""
        connection, until_s = self._connection, time.monotonic() + timeout_s
        while not connection.items:
            left_s = min(connection.timeout_s, max(0.0, until_s - time.monotonic()))
            poller = zmq.Poller()
            for socket in connection.sockets:
                poller.register(socket, zmq.POLLIN)
            poller.poll(None if left_s == math.inf else math.ceil(1000 * left_s))
            connection.receive()
            if not connection.items and time.monotonic() >= until_s:
                return None
        return connection.items.popleft()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Item:
        item = self.poll()
        assert item is not None
        return item

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncKvSubscriber:
    """The same for asyncio: `async for item in AsyncKvSubscriber(...)`."""

    def __init__(self, pub: str, replay: str = "", topic: str = "", rank: int = 0, *, heartbeat_s: float = 5.0) -> None:
        self._connection = _Connection(pub, replay, topic, rank, heartbeat_s)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Item:
        connection = self._connection
        while not connection.items:
            poller = zmq.asyncio.Poller()
            for socket in connection.sockets:
                poller.register(socket, zmq.POLLIN)
            left_s = connection.timeout_s
            await poller.poll(-1 if left_s == math.inf else math.ceil(1000 * left_s))
            connection.receive()
        return connection.items.popleft()

    def close(self) -> None:
        self._connection.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()
