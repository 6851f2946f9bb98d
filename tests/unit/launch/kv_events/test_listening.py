"""The check on real sockets: a stream that is too quick for its ring, joined late, whose publisher is replaced."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import zmq

from fourstroke.launch.kv_events.check import judge
from fourstroke.launch.kv_events.listening import listen
from fourstroke.procs.publisher.sockets import PubSocket, ReplaySocket, bound_port

from ...ipc.histories import Life
from ...procs.publisher.made import Made


class Publishers(threading.Thread):
    """Publishes a random life all the time with a ring of three batches; each publisher lives for so many turns."""

    def __init__(self, turns: int) -> None:
        super().__init__(daemon=True)
        self._turns, self._life = turns, Life(1)
        self.ports = [0, 0]
        self.bound, self.stopping = threading.Event(), threading.Event()

    def run(self) -> None:
        now = 100.0
        while not self.stopping.is_set():
            with zmq.Context() as context:
                sockets = [
                    make(context, f"tcp://127.0.0.1:{port}", *more)
                    for make, port, more in zip((PubSocket, ReplaySocket), self.ports, ((b"", 1000), ()), strict=True)
                ]
                now = self._live(Made(live=sockets[0], router=sockets[1], capacity=3, now=now), sockets)
                context.destroy(linger=0)

    def _live(self, made: Made, sockets: list) -> float:
        self.ports = [bound_port(one.socket) for one in sockets]
        self.bound.set()
        self._life.chains.clear()
        for _ in range(self._turns):
            made.now += 0.01
            made.stream.take(list(self._life.events(1)))
            made.replays.run()
            sockets[1].socket.poll(2)
            if self.stopping.is_set():
                break
        return made.now + 10


@contextmanager
def publishers(turns: int) -> Iterator[list[str]]:
    thread = Publishers(turns)
    thread.start()
    thread.bound.wait(10)
    yield [f"tcp://127.0.0.1:{port}" for port in thread.ports]
    thread.stopping.set()
    thread.join()


@pytest.mark.parametrize("turns", [1_000_000, 150])
def test_nothing_is_wrong(turns):
    """Whatever is answered in the place of batches that are not kept, and whichever process publishes in the end."""
    with publishers(turns) as (pub, replay):
        heard = listen(pub, replay, "", 1.5)
    rules = judge(heard, 0, replays=True, heartbeat_s=5, seed="vllm-none-hash")
    assert rules.wrong == {}
    assert heard.live and heard.replayed and rules.events
    assert not heard.restarts or turns < 1000
