"""Garbage on the wires of a running server: it is counted and dropped, and requests notice nothing."""

from __future__ import annotations

import random
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
    TO_EXECUTOR,
    Drain,
    Emit,
    KvBatch,
    KvTransfer,
    Report,
    Text,
)
from fourstroke.ipc.wire import MAX_FRAME_BYTES

from ..process.server import Server, get, leftovers, metrics, start_server, wait_metric
from .frames import Frame, garbage, is_message, senseless

WIRES = {
    ("ingest0", "scheduler0"): FROM_INGEST,
    ("scheduler0", "executor0"): TO_EXECUTOR,
    ("executor0", "scheduler0"): FROM_EXECUTOR,
    ("scheduler0", "output0"): (Emit,),
    ("output0", "ingest0"): (Text,),
    ("scheduler0", "publisher0"): (KvBatch,),
    ("supervisor", "ingest0"): (Drain,),
    **{(f"{role}0", "supervisor"): (Report,) for role in ("ingest", "scheduler", "executor", "output", "publisher")},
}
"""Each wire's sender, receiver and the messages that it may carry."""

RECEIVERS = Counter(receiver for _, receiver in WIRES)

FRAMES = 500
SENDING_MS = 30_000
BODIES = [
    {"prompt": f"Prompt {number}", "max_tokens": 80, "ignore_eos": True, "temperature": number % 2, "seed": number}
    for number in range(8)
]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """It must end as it was when this is over: with 0 when asked."""
    with start_server("--executor=fake", "--fake-step=0.05") as server:
        server.wait_ready()
        yield server


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


def send(server: Server, sender: str, receiver: str, frames: list[Frame]) -> None:
    """Send frames over a wire of the server as a stranger; they are received at some time."""
    (folder,) = [Path(path) for path in leftovers(server.pid) if Path(path).is_dir()]
    with zmq.Context() as context, context.socket(zmq.PUSH) as stranger:
        stranger.linger = SENDING_MS
        stranger.connect(f"ipc://{folder}/{sender}-{receiver}")
        for frame in frames:
            stranger.send_multipart(frame, copy=False)


def bad_frames(server: Server) -> Counter[str]:
    return Counter(
        {process: int(n) for (name, process), n in metrics(server.url).items() if name == "bad_frames_total"}
    )


def wait_bad_frames(server: Server, process: str, count: int) -> None:
    wait_metric(server.url, "bad_frames_total", process, lambda counted: counted == count)


def texts_while_sending(server: Server, frames: dict[tuple[str, str], list[Frame]], hit: Iterable[str]) -> list[str]:
    """What the requests are answered while frames arrive on the wires, of which those to `hit` are noticed."""
    before, pids = bad_frames(server), server.children()
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(ask_all, server)
        wait_metric(server.url, "requests_running", "scheduler0", lambda count: count == len(BODIES))
        for wire, some in frames.items():
            send(server, *wire, some)
        for receiver in hit:
            wait_metric(server.url, "bad_frames_total", receiver, lambda count, was=before[receiver]: count > was)
        assert metrics(server.url)["requests_running", "scheduler0"] == len(BODIES), "the requests were over too soon"
        texts = asked.result()
    assert server.children() == pids
    assert get(f"{server.url}/health")[0] == 200
    return texts


def test_the_wires_are_all(server: Server) -> None:
    """WIRES has every socket of the server."""
    (folder,) = [Path(path) for path in leftovers(server.pid) if Path(path).is_dir()]
    assert {tuple(path.name.split("-")) for path in folder.iterdir() if path.is_socket()} == WIRES.keys()


def test_garbage_is_counted_and_dropped(server: Server, texts: list[str]) -> None:
    """While requests run, each wire gets frames that are none of its messages: all are counted, none has an effect."""
    dice, before = random.Random(1), bad_frames(server)
    frames = {wire: list(islice(garbage(dice, expected), FRAMES)) for wire, expected in WIRES.items()}
    assert texts_while_sending(server, frames, RECEIVERS) == texts
    for receiver, wires in RECEIVERS.items():
        wait_bad_frames(server, receiver, before[receiver] + wires * FRAMES)


def test_senseless_messages_have_no_effect(server: Server, texts: list[str]) -> None:
    """Messages of the right types about nothing real, with numbers that fit nowhere, change no running request."""
    dice, plans = random.Random(2), bad_frames(server)["executor0"]
    frames = {wire: list(islice(senseless(dice, expected), FRAMES)) for wire, expected in WIRES.items()}
    assert texts_while_sending(server, frames, RECEIVERS.keys() - {"supervisor"}) == texts
    refused = [frame for frame in frames["scheduler0", "executor0"] if not is_message(frame, KvTransfer)]
    wait_bad_frames(server, "executor0", plans + len(refused))  # it takes one frame a step while it is busy


def test_a_frame_that_is_too_large_never_arrives(server: Server) -> None:
    """Who sends more than a frame may hold is cut off by ZeroMQ: there is nothing to count, and others are heard."""
    before, pids = bad_frames(server), server.children()
    for sender, receiver in WIRES:
        send(server, sender, receiver, [[bytes(MAX_FRAME_BYTES + 1)]])
        send(server, sender, receiver, [[b"garbage"]])
    for receiver, wires in RECEIVERS.items():
        wait_bad_frames(server, receiver, before[receiver] + wires)
    assert ask(server, {**BODIES[0], "max_tokens": 4})
    assert server.children() == pids
