"""kill -9 of any process while requests run, with the real model: they end as if nobody had died.

All requests run at once. The process dies when every stream has begun; what comes before and behind that is compared
with the answers of a run in which nobody died. In float32 neither depends on the batch.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest

from ..process.server import Server, get, start_server, wait_metric

CAT = {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}, "required": ["name"]}
COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"

WHOLE: list[tuple[str, dict[str, Any]]] = [
    (COMPLETIONS, {"prompt": "The capital of France is", "temperature": 0, "logprobs": 2}),
    (COMPLETIONS, {"prompt": "1, 2, 3, 4, 5, ", "seed": 2, "n": 2, "presence_penalty": 0.5}),
    (COMPLETIONS, {"prompt": "A cat, as JSON:", "temperature": 0, "structured_outputs": {"json": CAT}}),
    (COMPLETIONS, {"prompt": "def fibonacci(n):", "seed": 5, "echo": True, "logprobs": 1, "min_tokens": 20}),
]
STREAMED: list[tuple[str, dict[str, Any]]] = [
    (COMPLETIONS, {"prompt": "Once upon a time", "seed": 1, "logprobs": 1}),
    (COMPLETIONS, {"prompt": "a b c d e f", "temperature": 0, "stop": ["m n", " z"], "frequency_penalty": 0.1}),
    (CHAT, {"messages": [{"role": "user", "content": "Hi"}], "seed": 3, "n": 2, "logprobs": True, "top_logprobs": 1}),
    (CHAT, {
        "messages": [{"role": "user", "content": "A cat as JSON."}], "seed": 4,
        "response_format": {"type": "json_schema", "json_schema": {"name": "cat", "schema": CAT}},
    }),
]  # fmt: skip
MAX_TOKENS = 24


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    events = ["--kv-events", "--kv-events-endpoint=tcp://127.0.0.1:0", "--kv-events-replay-endpoint=tcp://127.0.0.1:0"]
    with start_server("--dtype=float32", "--max-restarts=100", *events) as server:
        server.wait_ready()
        yield server


class Answers:
    """What a run of all requests has given."""

    def __init__(self, server: Server, salt: str) -> None:
        """`salt` keeps what another run has cached out of this one; and no request shares a prefix with another."""
        self._salt = salt
        self._client = httpx.AsyncClient(base_url=server.url, timeout=120)
        self._begun = [asyncio.Event() for _ in STREAMED]

    async def take(self, killed: int | None = None) -> list[Any]:
        """All answers, without ids and times, or what befell the connection; a process is killed meanwhile."""
        async with self._client:
            asking = [asyncio.create_task(self._whole(path, fields)) for path, fields in WHOLE]
            asking += [asyncio.create_task(self._streamed(at, *one)) for at, one in enumerate(STREAMED)]
            for begun in self._begun:
                await begun.wait()
            if killed is not None:
                assert not any(one.done() for one in asking), "too late: nothing would be lost"
                os.kill(killed, signal.SIGKILL)
            return await asyncio.gather(*asking, return_exceptions=True)

    def _body(self, fields: dict[str, Any]) -> dict[str, Any]:
        return {"max_tokens": MAX_TOKENS, "cache_salt": f"{self._salt} {fields}", **fields}

    async def _whole(self, path: str, fields: dict[str, Any]) -> Any:
        response = await self._client.post(path, json=self._body(fields))
        assert response.status_code == 200, response.text
        answer = response.json()
        return answer["choices"], answer["usage"]

    async def _streamed(self, at: int, path: str, fields: dict[str, Any]) -> Any:
        body = self._body({**fields, "stream": True, "stream_options": {"include_usage": True}})
        joined: dict[int, list[Any]] = {}
        usage = None
        async with self._client.stream("POST", path, json=body) as response:
            async for chunk in _chunks(response):
                usage = chunk.get("usage") or usage
                for choice in chunk["choices"]:
                    found = joined.setdefault(choice["index"], ["", [], None, None])
                    found[0] += choice["text"] if path == COMPLETIONS else choice["delta"].get("content", "")
                    found[1].append(choice["logprobs"])
                    found[2:] = choice["finish_reason"] or found[2], choice.get("stop_reason") or found[3]
                    if found[0]:
                        self._begun[at].set()
        return [[text, _joined(scored), *ends] for _, (text, scored, *ends) in sorted(joined.items())], usage


async def _chunks(response: httpx.Response) -> AsyncIterator[Any]:
    last = ""
    async for line in response.aiter_lines():
        if line:
            last = line.removeprefix("data: ")
            if last != "[DONE]":
                yield json.loads(last)
    assert last == "[DONE]"


def _joined(scored: list[Any]) -> list[Any]:
    """The log-probabilities of the parts of a stream, token by token, however it was cut."""
    found = []
    for part in scored:
        if part is not None:
            found += part["content"] if "content" in part else zip(part["tokens"], part["token_logprobs"], strict=True)
    return found


def same(found: Any, expected: Any) -> bool:
    """Equal, but for the last digits of log-probabilities."""
    if isinstance(expected, float):
        return bool(found == pytest.approx(expected, abs=1e-3))
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(same(found[key], expected[key]) for key in expected)
    if isinstance(expected, list | tuple):
        return len(found) == len(expected) and all(map(same, found, expected))
    return bool(found == expected)


@pytest.fixture(scope="module")
def undisturbed(server: Server) -> list[Any]:
    answers = asyncio.run(Answers(server, "nobody").take())
    for answer in answers:
        assert not isinstance(answer, Exception), answer
    return answers


@pytest.mark.parametrize("role", ["scheduler", "executor", "output", "publisher"])
def test_requests_outlive_a_process(server: Server, undisturbed: list[Any], role: str) -> None:
    """Texts, usage, log-probabilities and ends of all requests are those of a run in which nobody died."""
    answers = asyncio.run(Answers(server, role).take(server.children()[role]))
    for answer, expected in zip(answers, undisturbed, strict=True):
        assert same(answer, expected), (answer, expected)
    wait_metric(server.url, "restarts_total", f"{role}0", lambda restarts: restarts == 1)


def test_an_ingest_takes_its_connections_with_it(server: Server, undisturbed: list[Any]) -> None:
    """Nobody else does anything for them any more, and the next request is answered by the next ingest.

    Its gauges tell of its own requests.
    """
    answers = asyncio.run(Answers(server, "ingest").take(server.children()["ingest"]))
    assert all(isinstance(answer, httpx.TransportError) for answer in answers), answers
    again = asyncio.run(Answers(server, "again").take())
    for answer, expected in zip(again, undisturbed, strict=True):
        assert same(answer, expected), (answer, expected)
    for name in ("requests_running", "requests_waiting"):
        wait_metric(server.url, name, "scheduler0", lambda requests: requests == 0)
    for name in ("requests_live", "requests_admitted", "prompt_ring_tokens"):
        wait_metric(server.url, name, "ingest0", lambda waiting: waiting == 0)
    assert get(server.url + "/health")[0] == 200
