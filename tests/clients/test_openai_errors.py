"""What goes wrong, as the official client's typed exceptions; retries, time-outs, and streams that are left."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx2
import openai
import pytest

from .around import KEY, MESSAGES, MODEL, TIMEOUT_S, TOO_LONG

LONG: dict[str, Any] = {"model": MODEL, "prompt": "Once", "max_tokens": 4000, "extra_body": {"ignore_eos": True}}
"""A completion that takes far longer than any test."""

Ask = Callable[[openai.OpenAI], object]


def chat(**fields: Any) -> Ask:
    return lambda client: client.chat.completions.create(**{"model": MODEL, "messages": MESSAGES, **fields})


def is_served(client: openai.OpenAI) -> None:
    """A request is served, perhaps after it was told to come later: what filled the server has left."""
    chat(max_tokens=1)(client.with_options(max_retries=8))


ERRORS: dict[str, tuple[Ask, type[openai.APIStatusError], str | None, str | None]] = {
    "value": (chat(top_p=7), openai.BadRequestError, "top_p", None),
    "value, streamed": (chat(top_p=7, stream=True), openai.BadRequestError, "top_p", None),
    "messages": (chat(messages=[]), openai.BadRequestError, "messages", None),
    "schema": (
        chat(response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "nothing"}}}),
        openai.BadRequestError,
        "response_format",
        None,
    ),
    "length": (
        chat(messages=[{"role": "user", "content": TOO_LONG}]),
        openai.BadRequestError,
        "messages",
        "context_length_exceeded",
    ),
    "model": (chat(model="other"), openai.NotFoundError, "model", "model_not_found"),
    "retrieve": (lambda client: client.models.retrieve("other"), openai.NotFoundError, "model", "model_not_found"),
    "key": (
        lambda client: client.with_options(api_key="wrong").models.list(),
        openai.AuthenticationError,
        None,
        "invalid_api_key",
    ),
    "embeddings": (
        lambda client: client.embeddings.create(model=MODEL, input="x"),
        openai.NotFoundError,
        None,
        None,
    ),
    "responses": (lambda client: client.responses.create(model=MODEL, input="x"), openai.NotFoundError, None, None),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_are_typed(client: openai.OpenAI, name: str) -> None:
    """Each error is an exception of its own type, with the server's words, the field at fault and a code."""
    ask, kind, param, code = ERRORS[name]
    with pytest.raises(kind) as raised:
        ask(client)
    assert (raised.value.param, raised.value.code) == (param, code)
    assert raised.value.message and raised.value.type


def test_retries_when_the_server_is_full(base_url: str, client: openai.OpenAI) -> None:
    """A client that is told to come later does so, and is served: here as soon as a crowd has left."""
    crowd = client.completions.create(n=16, stream=True, **LONG)
    next(iter(crowd))
    with pytest.raises(openai.RateLimitError) as raised:
        chat(max_tokens=1)(client)
    assert int(raised.value.response.headers["retry-after"]) >= 1
    statuses = []

    def note(response: httpx2.Response) -> None:
        statuses.append(response.status_code)
        crowd.close()

    http = openai.DefaultHttpxClient(event_hooks={"response": [note]})
    with openai.OpenAI(base_url=base_url, api_key=KEY, http_client=http, max_retries=3, timeout=TIMEOUT_S) as patient:
        chat(max_tokens=1)(patient)
    assert statuses[0] == 429
    assert statuses[-1] == 200


def test_time_out_of_the_client(client: openai.OpenAI) -> None:
    """A client that waits no longer has its own exception, and leaves nothing that keeps others waiting."""
    with pytest.raises(openai.APITimeoutError):
        client.with_options(timeout=0.5).completions.create(n=16, **LONG)
    is_served(client)


def test_time_out_of_the_server(client: openai.OpenAI) -> None:
    """A stream that is past its request's own limit ends with the finish reason `timeout`."""
    body = {"ignore_eos": True, "timeout": 2}
    answer = client.completions.create(**{**LONG, "extra_body": body}, stream=True)
    assert [chunk.choices[0].finish_reason for chunk in answer][-1] == "timeout"


def test_stream_that_is_left(client: openai.OpenAI) -> None:
    """Leaving a stream ends its request, here one that takes all of the server's room."""
    with client.completions.create(n=16, stream=True, **LONG) as stream:
        assert next(iter(stream)).choices
    is_served(client)
