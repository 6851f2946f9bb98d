"""A real server with the real model, through real clients."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import openai
import psutil
import pytest

from .server import Server, get, metrics

PROMPTS = [
    "The capital of France is",
    "Count from one to ten as words: one, two,",
    "1, 2, 3, 4,",
    "Water boils at a temperature of",
    "The three primary colours are",
    "A recipe for pancakes:",
    "def fibonacci(n):",
    "Once upon a time there was a",
]


@pytest.fixture
def client(exact_server: Server):
    with openai.OpenAI(base_url=f"{exact_server.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def complete(server: Server, prompt: str, **fields: object) -> dict:
    body = {"prompt": prompt, "max_tokens": 16, "temperature": 0, "ignore_eos": True, **fields}
    response = httpx.post(f"{server.url}/v1/completions", json=body, timeout=120)
    assert response.status_code == 200, response.text
    return response.json()["choices"][0]


def test_official_client(client: openai.OpenAI):
    """openai-python lists the model, chats, completes and streams; the stream joins to the whole answer."""
    (model,) = client.models.list().data
    assert model.id == "SmolLM2-135M-Instruct"
    ask = {"model": model.id, "temperature": 0, "max_tokens": 16}
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    whole = client.chat.completions.create(messages=messages, **ask)
    assert whole.choices[0].message.content == "The capital of France is Paris."
    assert whole.choices[0].finish_reason == "stop"
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens
    chunks = list(client.chat.completions.create(messages=messages, stream=True, **ask))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == whole.choices[0].message.content
    assert client.completions.create(prompt="1, 2, 3, 4,", **ask).choices[0].text.startswith(" 5, 6, 7,")


def test_official_client_shows_errors(client: openai.OpenAI):
    """A wrong parameter and an unknown model come back as the client's own exceptions, with the server's words."""
    messages = [{"role": "user", "content": "Hi"}]
    with pytest.raises(openai.BadRequestError, match="top_p"):
        client.chat.completions.create(model="SmolLM2-135M-Instruct", messages=messages, top_p=7)
    with pytest.raises(openai.NotFoundError, match="SmolLM2-135M-Instruct"):
        client.chat.completions.create(model="other", messages=messages)


@pytest.mark.parametrize("fields", [{}, {"temperature": 1.0, "seed": 5}], ids=["greedy", "seeded"])
def test_32_streams_at_once_equal_each_alone(exact_server: Server, fields: dict):
    """What a request says does not depend on who else is served."""
    prompts = [f"{prompt}{' and' * number}" for number in range(4) for prompt in PROMPTS]
    alone = [complete(exact_server, prompt, **fields)["text"] for prompt in prompts]
    with ThreadPoolExecutor(32) as pool:
        start = threading.Barrier(32)

        def together(prompt: str) -> str:
            start.wait()
            return stream(exact_server, prompt, **fields)

        beside = list(pool.map(together, prompts))
    assert beside == alone
    assert len(set(alone)) > 20, "the prompts are too alike to show anything"


def stream(server: Server, prompt: str, **fields: object) -> str:
    """The joined text of a streamed completion."""
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", timeout=120) as client:
        chunks = client.completions.create(
            model="SmolLM2-135M-Instruct",
            prompt=prompt,
            max_tokens=16,
            stream=True,
            temperature=fields.get("temperature", 0),
            seed=fields.get("seed"),
            extra_body={"ignore_eos": True},
        )
        return "".join(chunk.choices[0].text for chunk in chunks)


def test_the_same_seed_gives_the_same_text_and_another_seed_another(exact_server: Server):
    """Noise is a function of the seed and the position."""
    texts = [complete(exact_server, PROMPTS[-1], temperature=1.0, seed=seed)["text"] for seed in (7, 7, 8)]
    assert texts[0] == texts[1] != texts[2]


def test_metrics_speak_of_every_process(exact_server: Server):
    """Each process has its numbers; nothing runs or waits when nobody asks."""
    complete(exact_server, PROMPTS[0])
    numbers = metrics(exact_server.url)
    assert numbers["requests_running", "scheduler0"] == 0
    assert numbers["requests_waiting", "scheduler0"] == 0
    assert numbers["generation_tokens_total", "scheduler0"] >= 16
    assert numbers["steps_run_total", "executor0"] > 0
    assert {"ingest0", "scheduler0", "executor0", "output0", "publisher0"} <= {process for _, process in numbers}


def test_without_kv_events_nobody_can_listen(exact_server: Server):
    """The publisher has no socket to the world, and there is no source to tell of."""
    publisher = psutil.Process(exact_server.children()["publisher"])
    assert [one for one in publisher.net_connections() if one.status == psutil.CONN_LISTEN] == []
    assert get(f"{exact_server.url}/kv_event_sources") == (200, {"sources": []})
