"""Garbage on the wires of a running server: it is counted and dropped, and requests notice nothing."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path

import httpx
import pytest
import zmq

from fourstroke.ipc.messages import (
    FROM_EXECUTOR,
    FROM_INGEST,
    FROM_SCHEDULER,
    TO_EXECUTOR,
    Drain,
    KvBatch,
    KvTransfer,
    Report,
    Text,
)
from fourstroke.ipc.wire import MAX_FRAME_BYTES

from ..process.server import Server, get, leftovers, metrics, start_server, wait_metric
from .frames import Fate, Frame, Wire, fate, garbage, is_message, senseless

Ends = tuple[str, str]

WIRES: dict[Ends, tuple[type, ...]] = {
    ("ingest0", "scheduler0"): FROM_INGEST,
    ("scheduler0", "executor0"): TO_EXECUTOR,
    ("executor0", "scheduler0"): FROM_EXECUTOR,
    ("scheduler0", "output0"): FROM_SCHEDULER,
    ("output0", "ingest0"): (Text,),
    ("scheduler0", "publisher0"): (KvBatch,),
    ("supervisor", "ingest0"): (Drain,),
    **{(f"{role}0", "supervisor"): (Report,) for role in ("ingest", "scheduler", "executor", "output", "publisher")},
}
"""Each wire's sender, receiver and the messages that it may carry."""

RECEIVERS = Counter(receiver for _, receiver in WIRES)

GARBAGE = 10_000
SENSELESS = 500
"""Frames for each wire."""

SENDING_MS = 20_000
BODIES = [
    {"prompt": f"Prompt {number}", "max_tokens": 60, "ignore_eos": True, "temperature": number % 2, "seed": number}
    for number in range(8)
]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """Its processes are in their second lives. It must end as it was when this is over: with 0 when asked."""
    with start_server("--executor=fake", "--fake-step=0.05") as server:
        server.wait_ready()
        for role, pid in server.children().items():
            os.kill(pid, signal.SIGKILL)
            wait_metric(server.url, "restarts_total", f"{role}0", lambda restarts: restarts == 1)
        server.wait_said(" ready in ", 2 * len(server.children()))
        yield server


@pytest.fixture(scope="module")
def wires(server: Server) -> dict[Ends, Wire]:
    """The wires, and the lives at their ends."""
    lives = {process: int(n) for (name, process), n in metrics(server.url).items() if name == "restarts_total"}
    return {ends: Wire(expected, (lives[ends[0]], lives[ends[1]])) for ends, expected in WIRES.items()}


@pytest.fixture(scope="module")
def texts(server: Server) -> list[str]:
    """What the requests are answered when all is quiet."""
    return ask_all(server)


def ask_all(server: Server) -> list[str]:
    with ThreadPoolExecutor(len(BODIES)) as pool:
        return list(pool.map(lambda body: ask(server, body), BODIES))


def ask(server: Server, body: dict[str, object]) -> str:
    response = httpx.post(f"{server.url}/v1/completions", json=body, timeout=60)
    assert response.status_code == 200, response.text
    return response.json()["choices"][0]["text"]


class Strangers:
    """Who sends what he likes over each wire of a server. When he goes, frames may be lost that were not read yet."""

    def __init__(self, server: Server) -> None:
        (folder,) = [Path(path) for path in leftovers(server.pid) if Path(path).is_dir()]
        self._context = zmq.Context()
        self._sockets = {ends: self._context.socket(zmq.PUSH) for ends in WIRES}
        for ends, socket in self._sockets.items():
            socket.sndtimeo = SENDING_MS
            socket.connect(f"ipc://{folder}/{'-'.join(ends)}")

    def send(self, frames: dict[Ends, list[Frame]]) -> None:
        """Send frames over several wires at once; they are received at some time."""

        def send_some(ends: Ends) -> None:
            for frame in frames[ends]:
                self._sockets[ends].send_multipart(frame, copy=False)

        with ThreadPoolExecutor(len(frames)) as pool:
            list(pool.map(send_some, frames))

    def __enter__(self) -> Strangers:
        return self

    def __exit__(self, *_: object) -> None:
        self._context.destroy(linger=0)


def bad_frames(server: Server) -> Counter[str]:
    return Counter(
        {process: int(n) for (name, process), n in metrics(server.url).items() if name == "bad_frames_total"}
    )


def wait_bad_frames(server: Server, process: str, count: int) -> None:
    wait_metric(server.url, "bad_frames_total", process, lambda counted: counted == count)


def texts_while_sending(
    server: Server, strangers: Strangers, frames: dict[Ends, list[Frame]], hit: Iterable[str]
) -> list[str]:
    """What the requests are answered while frames arrive on the wires, of which those to `hit` are noticed."""
    before, pids = bad_frames(server), server.children()
    with ThreadPoolExecutor(2) as pool:
        asked = pool.submit(ask_all, server)
        wait_metric(server.url, "requests_running", "scheduler0", lambda count: count == len(BODIES))
        sent = pool.submit(strangers.send, frames)
        for receiver in hit:
            wait_metric(server.url, "bad_frames_total", receiver, lambda count, was=before[receiver]: count > was)
        assert metrics(server.url)["requests_running", "scheduler0"] == len(BODIES), "the requests were over too soon"
        texts = asked.result()
        sent.result()
    assert server.children() == pids
    assert get(f"{server.url}/health")[0] == 200
    return texts


def test_the_wires_are_all(server: Server) -> None:
    """WIRES has every socket of the server."""
    (folder,) = [Path(path) for path in leftovers(server.pid) if Path(path).is_dir()]
    assert {tuple(path.name.split("-")) for path in folder.iterdir() if path.is_socket()} == WIRES.keys()


def test_garbage_is_counted_and_dropped(server: Server, wires: dict[Ends, Wire], texts: list[str]) -> None:
    """While requests run, each wire gets frames that are none of its messages, or messages of lives that are over or
    have not begun. None has an effect; all are counted but those of the dead, who could not know.
    """
    dice, before = random.Random(1), bad_frames(server)
    last = [[b"garbage"]]  # counted: when it is, all before it have been read
    frames = {ends: [*islice(garbage(dice, wire), GARBAGE), *last] for ends, wire in wires.items()}
    for ends, some in frames.items():
        before[ends[1]] += sum(fate(frame, wires[ends]) is Fate.BAD for frame in some)
    with Strangers(server) as strangers:
        assert texts_while_sending(server, strangers, frames, RECEIVERS) == texts
        for receiver in RECEIVERS:
            wait_bad_frames(server, receiver, before[receiver])


def test_senseless_messages_have_no_effect(server: Server, wires: dict[Ends, Wire], texts: list[str]) -> None:
    """Messages of the right types about nothing real, with numbers that fit nowhere, change no running request."""
    dice, plans = random.Random(2), bad_frames(server)["executor0"]
    frames = {ends: list(islice(senseless(dice, wire), SENSELESS)) for ends, wire in wires.items()}
    plan = "scheduler0", "executor0"
    refused = [frame for frame in frames[plan] if not is_message(frame, wires[plan], KvTransfer)]
    with Strangers(server) as strangers:
        assert texts_while_sending(server, strangers, frames, RECEIVERS.keys() - {"supervisor"}) == texts
        wait_bad_frames(server, "executor0", plans + len(refused))  # it takes one frame a step while it is busy


def test_a_frame_that_is_too_large_never_arrives(server: Server) -> None:
    """Who sends more than a frame may hold is cut off by ZeroMQ: there is nothing to count, and others are heard."""
    before, pids = bad_frames(server), server.children()
    with Strangers(server) as too_much, Strangers(server) as others:
        for ends in WIRES:
            too_much.send({ends: [[bytes(MAX_FRAME_BYTES + 1)]]})
        others.send({ends: [[b"garbage"]] for ends in WIRES})
        for receiver, wires in RECEIVERS.items():
            wait_bad_frames(server, receiver, before[receiver] + wires)
    assert ask(server, {**BODIES[0], "max_tokens": 4})
    assert server.children() == pids
