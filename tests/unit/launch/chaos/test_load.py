"""The steady load, against a tiny server that goes wrong as it is told."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from fourstroke.launch.chaos.load import SteadyLoad, ask_each, ask_once
from fourstroke.launch.client import Client

from ..bench.fake_server import FakeServer, fake_server
from .made import made_ask

ASKS = [made_ask(f"number {number}") for number in range(5)]


def test_an_answer() -> None:
    """Its text, its usage, and when each event came."""
    with fake_server() as server:
        heard = ask_once(Client(server.url), ASKS[0])
    assert heard.answer is not None and heard.record.error is None
    assert (heard.answer.text, heard.answer.finish_reason) == (" a" * 4, "length")
    assert heard.record.output_tokens == 4 and len(heard.record.chunks_s) == 6
    times = [heard.record.begun_s, *heard.record.chunks_s, heard.record.ended_s]
    assert times == sorted(times)


@pytest.mark.parametrize(
    "how, said, broke",
    [("fail", "out of fuel", False), ("cut", "broke off", True), ("mute", "lacks 'usage'", False)],
)
def test_what_goes_wrong(how: str, said: str, broke: bool) -> None:
    """Is the request's error, in words; a connection that broke is told from an answer that is wrong."""
    with fake_server(**{how: frozenset({0})}) as server:
        heard = ask_once(Client(server.url), ASKS[0])
    assert heard.answer is None and heard.broke is broke
    assert heard.record.error is not None and said in heard.record.error


def test_each_is_asked_once() -> None:
    """All of them, no more than so many at a time, answers in the order of the questions."""
    with fake_server() as server:
        heard = ask_each(Client(server.url), ASKS, 2)
    assert [one.ask for one in heard] == ASKS
    assert sorted(body["prompt"] for body in server.bodies) == [ask.name for ask in ASKS]
    assert server.most_open <= 2


class Awaited(list[Any]):
    """The bodies that a server got; sets an event when there are enough."""

    def __init__(self, enough: int) -> None:
        super().__init__()
        self._enough = enough
        self.came = threading.Event()

    def append(self, body: Any) -> None:
        super().append(body)
        if len(self) == self._enough:
            self.came.set()


def load_until(server: FakeServer, enough: int, again: bool) -> SteadyLoad:
    """A load that has ended after so many requests had come to the server."""
    awaited = Awaited(enough)
    server.bodies = awaited
    load = SteadyLoad(Client(server.url), ASKS, 2, again)
    assert awaited.came.wait(20)
    assert load.end(20) == 0
    return load


def test_a_steady_load() -> None:
    """The requests in turn, over and over; all that came to the server have ended."""
    with fake_server() as server:
        load = load_until(server, 12, again=False)
    assert len(load.heard) == len(server.bodies) >= 12
    assert {one.ask.name for one in load.heard} == {ask.name for ask in ASKS}
    assert all(one.answer is not None and one.tries == 1 for one in load.heard)


@pytest.mark.parametrize("again", [False, True])
def test_broken_connections(again: bool) -> None:
    """Are asked again where that is wanted, and then answered; where not they are errors."""
    with fake_server(cut=frozenset({0, 1, 2})) as server:
        load = load_until(server, 12, again)
    broke = [one for one in load.heard if one.broke]
    assert len(broke) == (0 if again else 3)
    assert sum(one.tries - 1 for one in load.heard) == (3 if again else 0)


def test_a_request_that_never_ends() -> None:
    """Is counted and broken off."""
    with fake_server() as server:
        server.lock.acquire()  # it answers nobody
        load = SteadyLoad(Client(server.url), ASKS, 2, again=True)
        late = load.end(0.05)
        server.lock.release()
    assert late == 2
    assert all(one.broke for one in load.heard)
