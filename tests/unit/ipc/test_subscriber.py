"""The two subscribers on real sockets: the past and what is live, in order, another process, silence, another rank."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator

import pytest
import zmq

from fourstroke import AsyncKvSubscriber, KvIndex, KvSubscriber
from fourstroke.ipc import keep_alive as keep_alive_module
from fourstroke.ipc.follower import Item, Lost, Received, Restarted, Silent, Unreadable
from fourstroke.ipc.subscriber import QUEUE
from fourstroke.procs.publisher.sockets import PubSocket, ReplaySocket, bound_port

from ..procs.publisher.made import Made
from .histories import BLOCK, Life

TURNS = 5000

GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x01" + b"NULL".ljust(20, b"\0") + bytes(32)
READY = b"\x04\x19\x05READY\x0bSocket-Type\x00\x00\x00\x03PUB"
"""How a publisher begins a connection (ZMTP 3.1)."""


class Publisher:
    """A publisher of rank 0, which acts when the test lets it; `restart` puts another one in its place."""

    def __init__(self, port: int = 0, replay_port: int = 0, now: float = 100.0) -> None:
        self._context = zmq.Context()
        self.pub = PubSocket(self._context, f"tcp://127.0.0.1:{port}", b"", 1000)
        self.router = ReplaySocket(self._context, f"tcp://127.0.0.1:{replay_port}")
        self.made = Made(live=self.pub, router=self.router, capacity=50)
        self.made.now = now
        self.ends = tuple(f"tcp://127.0.0.1:{bound_port(one.socket)}" for one in (self.pub, self.router))

    def publish(self, life: Life, events: int) -> None:
        for event in life.events(events):
            self.made.now += 0.001
            self.made.stream.take([event])

    def act(self) -> None:
        self.made.now += 0.001
        self.made.replays.run()

    def restart(self) -> Publisher:
        ports = [int(end.rsplit(":")[-1]) for end in self.ends]
        self.close()
        return Publisher(*ports, now=1e6)

    def close(self) -> None:
        self._context.destroy(linger=0)


@pytest.fixture
def publisher() -> Iterator[Publisher]:
    made = Publisher()
    yield made
    made.close()


def numbers(items: list[Item]) -> list[int]:
    return [item.number for item in items if isinstance(item, Received)]


def read(publisher: Publisher, events: KvSubscriber, count: int) -> list[Item]:
    """So many items, while the publisher acts."""
    items: list[Item] = []
    for _ in range(TURNS):
        publisher.act()
        if (item := events.poll(0.005)) is not None:
            items.append(item)
        if len(items) == count:
            return items
    raise AssertionError(f"only {items}")


def test_from_the_beginning_to_what_is_live(publisher):
    """Every batch once and in order; what they tell is what the cache has."""
    life, index = Life(1), KvIndex(BLOCK)
    publisher.publish(life, 80)
    with KvSubscriber(*publisher.ends, heartbeat_s=0) as events:
        items = read(publisher, events, 81)
        publisher.publish(life, 30)
        items += read(publisher, events, 30)
    assert numbers(items) == list(range(111))
    for item in items:
        index.apply(item.batch)
    assert index.hashes() == {int.from_bytes(digest[-8:], "big") for digest in life.digests}
    assert index.verify() == []


def test_another_process_takes_its_place(publisher):
    """It is noticed when the connection breaks, and everything begins anew."""
    publisher.publish(Life(1), 5)
    with KvSubscriber(*publisher.ends, heartbeat_s=0) as events:
        assert numbers(read(publisher, events, 6)) == list(range(6))
        publisher = publisher.restart()
        publisher.publish(Life(2), 8)
        first, *others = read(publisher, events, 10)
        assert first == Restarted()
        assert numbers(others) == list(range(9))
    publisher.close()


def test_without_replay_what_was_before_is_lost(publisher):
    """And that is said."""
    publisher.publish(Life(1), 5)
    with KvSubscriber(publisher.ends[0], heartbeat_s=0) as events:
        items: list[Item] = []
        life = Life(2)
        while len(items) < 2:
            publisher.publish(life, 1)
            items += [item for item in [events.poll(0.01)] if item is not None]
        assert isinstance(items[0], Lost)
        assert items[0].end == items[1].number


def test_silence_and_another_rank(publisher):
    """Three heartbeats without a word are reported, and so is a batch of a rank that was not asked for."""
    with KvSubscriber(*publisher.ends, rank=3, heartbeat_s=0.01) as events:
        items = read(publisher, events, 2)
        assert {type(item) for item in items} <= {Silent, Unreadable}
        items += read(publisher, events, 3)
    assert Silent(0.03) in items
    assert any(isinstance(item, Unreadable) and "rank 0" in item.cause for item in items)


def test_asyncio(publisher):
    """The same with `async for`."""
    life = Life(1)
    publisher.publish(life, 60)

    async def follow() -> list[Item]:
        items: list[Item] = []

        async def act() -> None:
            while True:
                publisher.act()
                await asyncio.sleep(0.001)

        acting = asyncio.create_task(act())
        async with AsyncKvSubscriber(*publisher.ends, heartbeat_s=0) as events:
            async for item in events:
                items.append(item)
                if len(items) == 61:
                    publisher.publish(life, 5)
                if len(items) == 66:
                    break
        acting.cancel()
        return items

    assert numbers(asyncio.run(follow())) == list(range(66))


def test_what_waits_in_sockets_is_bounded_and_the_dead_are_noticed(publisher):
    """Of all sockets, at both ends. Only subscribers ping: a reader may not know what that is."""
    with KvSubscriber(*publisher.ends, heartbeat_s=0) as events:
        mine = [events._connection._live, events._connection._answers]
        theirs = [publisher.pub.socket, publisher.router.socket]
        assert all(0 < end.rcvhwm <= QUEUE and end.tcp_keepalive == 1 for end in (*mine, *theirs))
        assert all(0 < end.heartbeat_ivl < end.heartbeat_timeout for end in mine)
        assert all(end.heartbeat_ivl == 0 for end in theirs)


def test_a_publisher_that_hangs_is_noticed(monkeypatch):
    """One that answers no ping: its connection is broken, so that who has taken its place is looked for."""
    monkeypatch.setattr(keep_alive_module, "PING_EVERY_S", 0.02)
    monkeypatch.setattr(keep_alive_module, "DEAD_AFTER_S", 0.04)
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        KvSubscriber(f"tcp://127.0.0.1:{server.getsockname()[1]}", heartbeat_s=0) as events,
        server.accept()[0] as connection,
    ):
        connection.sendall(GREETING + READY)
        assert events._connection._monitor.poll(10_000)
