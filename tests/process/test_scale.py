"""Two ingests on one port, two engines, two outputs, in real processes: one server to whoever looks from outside."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from fourstroke.procs.executor.fake import continuation

from .server import Server, get, metrics, start_server, wait_metric

FLAGS = ("--executor=fake", "--fake-step=0.002", "--max-num-seqs=4", "--max-queue=8")
TWO_OF_EACH = ("--ingest-procs=2", "--output-procs=2", "--data-parallel-size=2")
CAPACITY = 8 + 2 * 4
"""Choices that may run or wait: --max-queue, and what both engines run."""

LONG = 8000
WORDS = "the quick brown fox jumps over a lazy dog " * 15_000
LONG_PROMPTS = {
    "text": ("/v1/completions", {"prompt": WORDS[:600_000]}),
    "tokenize": ("/tokenize", {"prompt": WORDS[:600_000]}),
    "ids": ("/v1/completions", {"prompt": [1234] * 2_000_000}),
}
PAIR = range(2)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with start_server(*FLAGS, *TWO_OF_EACH) as server:
        server.url = server.wait_ready()
        yield server


@pytest.fixture
def at(server: Server) -> Iterator[Callable[[int], httpx.Client]]:
    """A connection to one of the ingests, which stays with it."""
    with contextlib.ExitStack() as stack:
        yield lambda ingest: stack.enter_context(contextlib.closing(connected(server, ingest)))


def connected(server: Server, ingest: int) -> httpx.Client:
    for _ in range(100):
        client = httpx.Client(base_url=server.url, timeout=60, verify=False)
        if ingest_of(ask(client, [7], 1)["id"]) == ingest:
            return client
        client.close()
    raise AssertionError(f"of 100 connections none is ingest {ingest}'s")


def ingest_of(request_id: str) -> int:
    return int(request_id.partition("-")[2][:2], 16)


def fields(prompt: list[int], tokens: int) -> dict[str, Any]:
    return {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, "skip_special_tokens": False}


def ask(client: httpx.Client, prompt: list[int], tokens: int) -> Any:
    response = client.post("/v1/completions", json=fields(prompt, tokens))
    assert response.status_code == 200, response.text
    return response.json()


class Stream:
    """A stream that has begun."""

    def __init__(self, client: httpx.Client, prompt: list[int], tokens: int) -> None:
        self._context = client.stream("POST", "/v1/completions", json=fields(prompt, tokens) | {"stream": True})
        self._lines = self._context.__enter__().iter_lines()
        self.id = self._chunk()["id"]

    def _chunk(self) -> Any:
        return json.loads(next(line for line in self._lines if line).removeprefix("data: "))

    def go_on(self) -> None:
        """Wait for one more chunk."""
        self._chunk()

    def leave(self) -> None:
        self._context.__exit__(None, None, None)

    def rest(self) -> list[str]:
        """What else comes: the finish reasons of all further chunks."""
        lines = [line.removeprefix("data: ") for line in self._lines if line]
        self._context.__exit__(None, None, None)
        assert lines.pop() == "[DONE]"
        return [json.loads(line)["choices"][0]["finish_reason"] for line in lines]


Connect = Callable[[int], httpx.Client]


def test_texts_and_sums(server: Server) -> None:
    """The texts are those of the plain definition; all processes have worked, and their numbers add up."""
    prompts = [[20 + number] * (5 + 3 * number) for number in range(CAPACITY)]
    before = metrics(server.url)
    with ThreadPoolExecutor(CAPACITY) as pool, contextlib.ExitStack() as stack:
        clients = [stack.enter_context(contextlib.closing(connected(server, number % 2))) for number in range(CAPACITY)]
        added = 2 * len([ask(client, [7], 1) for client in clients])
        texts = [one["choices"][0]["text"] for one in pool.map(ask, clients, prompts, [24] * CAPACITY)]
        expected = [continuation(prompt, 24) for prompt in prompts]
        assert texts == [clients[0].post("/detokenize", json={"tokens": ids}).json()["prompt"] for ids in expected]
    numbers = metrics(server.url)

    def grown(name: str, role: str) -> list[float]:
        return [numbers[name, f"{role}{one}"] - before[name, f"{role}{one}"] for one in PAIR]

    for name, role in (
        ("http_requests_total", "ingest"), ("detokenized_tokens_total", "output"), ("requests_total", "scheduler")
    ):  # fmt: skip
        assert min(grown(name, role)) > 0
    assert sum(grown("http_requests_total", "ingest")) == sum(grown("requests_total", "scheduler")) >= added
    assert sum(grown("detokenized_tokens_total", "output")) == sum(grown("generation_tokens_total", "scheduler"))
    assert [numbers["requests_admitted", f"ingest{one}"] for one in PAIR] == [0, 0]
    assert {"ingest0", "ingest1", "output0", "output1", "scheduler1"} <= server.children().keys()


@pytest.mark.parametrize("kind", LONG_PROMPTS)
def test_a_long_prompt_does_not_delay_a_stream(at: Connect, kind: str) -> None:
    """While an ingest reads, tokenises or refuses a long prompt, a stream of the same ingest gets tokens."""
    path, body = LONG_PROMPTS[kind]
    client, content = at(0), json.dumps(body)
    stream = Stream(at(0), [8], LONG)
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(client.post, path, content=content)
        meanwhile = 0
        while not answer.done():
            stream.go_on()
            meanwhile += not answer.done()
        stream.leave()
    assert answer.result().status_code == (200 if path == "/tokenize" else 400)
    assert meanwhile >= 4


@pytest.mark.parametrize("owner", PAIR)
@pytest.mark.parametrize("asked", PAIR)
def test_abort(at: Connect, asked: int, owner: int) -> None:
    """A request is ended by its id, whichever ingest is asked; another id, or one that has ended, is a 404."""
    stream = Stream(at(owner), [8], LONG)
    assert ingest_of(stream.id) == owner
    client = at(asked)
    assert client.post(f"/v1/requests/{stream.id[:-1]}/abort").status_code == 404
    assert client.post(f"/v1/requests/{stream.id}/abort").json() == {"id": stream.id, "status": "aborted"}
    assert "length" not in stream.rest()
    assert client.post(f"/v1/requests/{stream.id}/abort").status_code == 404


@pytest.mark.parametrize("owner", PAIR)
def test_reset_of_the_prefix_cache(server: Server, at: Connect, owner: int) -> None:
    """It is refused while a request runs at the other ingest, waits for it if forced, and is done for all."""
    client, prompt = at(1 - owner), [9] * 160

    def cached() -> list[int]:
        answers = [ask(at(one), prompt, 1) for one in PAIR for _ in PAIR]
        return [answer["usage"]["prompt_tokens_details"]["cached_tokens"] for answer in answers]

    cached()
    assert cached() == [144] * 4
    stream = Stream(at(owner), [8], 200)
    assert client.post("/reset_prefix_cache").status_code == 409
    assert client.post("/reset_prefix_cache", json={"force": True}).json() == {"status": "reset"}
    assert stream.rest()[-1] == "length"
    assert client.post("/reset_prefix_cache").status_code == 200
    assert cached()[0] == 0


def test_the_queue_is_one(server: Server, at: Connect) -> None:
    """--max-queue counts the requests of both ingests: when they have as many together, both refuse."""
    streams = [at(number % 2) for number in range(CAPACITY)]
    refused = [at(one) for one in PAIR]
    with ThreadPoolExecutor(CAPACITY) as pool:
        running = [pool.submit(ask, client, [8, number], 400) for number, client in enumerate(streams)]
        for one in PAIR:
            wait_metric(server.url, "requests_admitted", f"ingest{one}", lambda admitted: admitted == CAPACITY / 2)
        answers = [client.post("/v1/completions", json=fields([7], 1)) for client in refused]
        assert [answer.status_code for answer in answers] == [429, 429]
        assert all(f"{CAPACITY} are running or waiting" in answer.text for answer in answers)
        assert [one.result()["usage"]["completion_tokens"] for one in running] == [400] * CAPACITY
    assert get(f"{server.url}/health") == (200, {"status": "ok", "detail": ""})


def test_drain(server: Server, at: Connect) -> None:
    """On SIGTERM the streams of both ingests come to their end, and the server exits with 0. This test is the last."""
    streams = [Stream(at(one), [8], 300) for one in PAIR]
    server.process.terminate()
    assert [stream.rest()[-1] for stream in streams] == ["length"] * 2
    assert server.wait() == 0
