"""Fields of the OpenAI API that clients send and that must change nothing, or must be refused and not ignored."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from .around import ANSWER, GREEDY, MESSAGES, MODEL, QUESTION

HARMLESS: list[dict[str, Any]] = [
    {"function_call": "none"},
    {"functions": []},
    {"logprobs": False},
    {"metadata": {"session": "1"}},
    {"modalities": ["text"]},
    {"parallel_tool_calls": True},
    {"prediction": {"type": "content", "content": "Paris"}},
    {"prompt_cache_key": "k"},
    {"reasoning_effort": "low"},
    {"response_format": {"type": "text"}},
    {"safety_identifier": "s"},
    {"service_tier": "auto"},
    {"store": False},
    {"tool_choice": "none"},
    {"tools": []},
    {"user": "u"},
    {"verbosity": "low"},
]
NULLABLE = (
    "frequency_penalty",
    "logit_bias",
    "logprobs",
    "n",
    "presence_penalty",
    "response_format",
    "seed",
    "stop",
    "stream",
    "stream_options",
    "tool_choice",
    "tools",
    "top_logprobs",
    "top_p",
    "user",
)


def say(client: openai.OpenAI, messages: list[Any] = MESSAGES, **fields: Any) -> str | None:
    answer = client.chat.completions.create(model=MODEL, messages=messages, **GREEDY, **fields)
    return answer.choices[0].message.content


@pytest.mark.parametrize("fields", HARMLESS, ids=lambda fields: next(iter(fields)))
def test_harmless_fields(client: openai.OpenAI, fields: dict[str, Any]) -> None:
    """What newer clients send beside the question does not change the answer."""
    assert say(client, **fields) == ANSWER


def test_null_is_absent(client: openai.OpenAI) -> None:
    """Clients in other languages send null for what is not set."""
    assert say(client, extra_body=dict.fromkeys(NULLABLE)) == ANSWER


@pytest.mark.parametrize(
    "fields",
    [
        {"functions": [{"name": "f", "parameters": {}}]},
        {"modalities": ["text", "audio"], "audio": {"voice": "alloy", "format": "wav"}},
        {"top_logprobs": 2},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_fields_that_cannot_be_kept(client: openai.OpenAI, fields: dict[str, Any]) -> None:
    """What would change the answer and cannot be done is refused by its name."""
    with pytest.raises(openai.BadRequestError) as raised:
        say(client, **fields)
    assert raised.value.param in fields


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "user", "content": [{"type": "text", "text": QUESTION[:8]}, {"type": "text", "text": QUESTION[8:]}]}],
        [{"role": "user", "name": "ann", "content": QUESTION}],
        [{"role": "developer", "content": "You are a helpful AI assistant named SmolLM, trained by Hugging Face"}]
        + MESSAGES,
    ],
    ids=["parts", "name", "developer"],
)
def test_forms_of_messages(client: openai.OpenAI, messages: list[Any]) -> None:
    """Parts of text are one text; a name is allowed; the developer is the system (here with the default words)."""
    assert say(client, messages) == ANSWER


def test_images_are_refused(client: openai.OpenAI) -> None:
    """A part that the model cannot take is an error that names its type, not a silence."""
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    with pytest.raises(openai.BadRequestError, match="image_url"):
        say(client, [{"role": "user", "content": [{"type": "text", "text": QUESTION}, image]}])
