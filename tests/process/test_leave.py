"""How requests end that nobody waits for any more, and those that run when the server is asked to stop."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import httpx
import pytest

from .server import Server, leftovers, metrics, start_server, wait_metric

SLOW = ("--executor=fake", "--fake-step=0.05")
PROMPT = {"prompt": "Once upon a time", "ignore_eos": True}
ENDLESS = {**PROMPT, "max_tokens": 8000}


@contextmanager
def stream(server: Server, body: dict[str, Any]) -> Iterator[Iterator[str]]:
    """A stream in which text has begun to come: the data of its further events."""
    url = f"{server.url}/v1/completions"
    with httpx.stream("POST", url, json={**body, "stream": True}, timeout=60) as response:
        assert response.status_code == 200
        events = (line.removeprefix("data: ") for line in response.iter_lines() if line)
        next(events)
        yield events


def ask(server: Server, body: dict[str, Any]) -> dict[str, Any]:
    response = httpx.post(f"{server.url}/v1/completions", json=body, timeout=60)
    assert response.status_code == 200, response.text
    return response.json()["choices"][0]


def test_streams_end_whole_when_the_server_stops():
    """After SIGTERM a stream goes on to its end, a new request is refused, and the exit status is 0."""
    body = {**PROMPT, "max_tokens": 40}
    with start_server(*SLOW) as server:
        server.wait_ready()
        whole = ask(server, body)
        with stream(server, {**body, "stream_options": {"include_usage": True}}) as events:
            server.process.send_signal(signal.SIGTERM)
            server.wait_said("finishing what runs")
            assert refused(server)
            *rest, usage, done = events
        assert done == "[DONE]"
        assert json.loads(usage)["usage"]["completion_tokens"] == 40
        choices = [json.loads(event)["choices"][0] for event in rest]
        assert choices[-1]["finish_reason"] == "length"
        assert whole["text"].endswith("".join(choice["text"] for choice in choices))
        assert server.wait() == 0
    assert "cut off" not in server.errors
    assert leftovers(server.pid) == []


def test_a_death_during_the_drain_is_told():
    """Ingest that is killed while it finishes requests has cut them off: the server says so and awaits nothing more."""
    with start_server(*SLOW) as server:
        server.wait_ready()
        ingest = server.children()["ingest"]
        with suppress(httpx.TransportError), stream(server, {**PROMPT, "max_tokens": 4000}) as events:
            server.process.send_signal(signal.SIGTERM)
            server.wait_said("finishing what runs")
            os.kill(ingest, signal.SIGKILL)
            list(events)
        assert server.wait() == 0
    assert "ingest0 was killed by SIGKILL" in server.errors
    assert leftovers(server.pid) == []


def refused(server: Server) -> bool:
    """Whether a new request gets a 503, or not even a connection."""
    try:
        return httpx.post(f"{server.url}/v1/completions", json=PROMPT, timeout=60).status_code == 503
    except httpx.ConnectError:
        return True


def test_streams_are_cut_at_the_drain_timeout():
    """A stream that does not end in time ends with an error event; that is a clean stop, which says what it did."""
    with start_server(*SLOW, "--drain-timeout=1") as server:
        server.wait_ready()
        with stream(server, ENDLESS) as events:
            server.process.send_signal(signal.SIGTERM)
            *_, last = events
        assert "stopping" in json.loads(last)["error"]["message"]
        assert server.wait() == 0
    assert "did not end within --drain-timeout 1 s" in server.errors
    assert leftovers(server.pid) == []


@pytest.fixture(scope="module")
def slow_server() -> Iterator[Server]:
    with start_server(*SLOW) as server:
        server.wait_ready()
        yield server


def assert_idle(server: Server) -> None:
    """Nothing of any request is left in the engine, soon."""
    wait_metric(server.url, "requests_running", "scheduler0", lambda running: running == 0)
    wait_metric(server.url, "requests_live", "ingest0", lambda live: live == 0)
    numbers = metrics(server.url)
    assert numbers["requests_waiting", "scheduler0"] == 0
    assert numbers["kv_blocks_free", "scheduler0"] == numbers["kv_blocks", "scheduler0"]


def test_client_leaves_a_stream(slow_server: Server):
    """When the client of a stream goes, its request ends and gives everything back."""
    with stream(slow_server, {**ENDLESS, "n": 3}):
        assert metrics(slow_server.url)["requests_running", "scheduler0"] == 3
    assert_idle(slow_server)


def test_client_leaves_before_the_answer(slow_server: Server):
    """So does the request of a client that does not wait for its whole answer."""
    with httpx.Client() as client, pytest.raises(httpx.ReadTimeout):
        client.post(f"{slow_server.url}/v1/completions", json=ENDLESS, timeout=0.5)
    assert_idle(slow_server)
