"""Tool calls of a real server with the real model, through the official client."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletionMessage

from .server import start_server

MODEL = "SmolLM2-135M-Instruct"
SCHEMA = {
    "type": "object",
    "properties": {"city": {"enum": ["Paris", "Oslo"]}, "days": {"type": "integer", "minimum": 1, "maximum": 3}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
TOOLS: list[Any] = [
    {"type": "function", "function": {"name": name, "description": name.replace("_", " "), "parameters": SCHEMA}}
    for name in ("get_weather", "get_time")
]
NAMED = {"type": "function", "function": {"name": "get_weather"}}
ASK: dict[str, Any] = {
    "model": MODEL,
    "messages": [{"role": "user", "content": "What is the weather in Paris?"}],
    "tools": TOOLS,
    "temperature": 0,
    "max_tokens": 120,
}


@pytest.fixture(scope="module")
def client() -> Iterator[openai.OpenAI]:
    """A client of a server in bfloat16: they wait for some 300 tokens, which take float32 three times as long."""
    with start_server() as server:
        url = server.wait_ready()
        with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
            yield client


def streamed(client: openai.OpenAI, **fields: Any) -> tuple[ChatCompletionMessage, str]:
    """A stream put together by the client's own helper, and its finish reason."""
    with client.chat.completions.stream(**{**ASK, **fields}) as stream:
        choice = stream.get_final_completion().choices[0]
    return choice.message, choice.finish_reason


def functions(message: ChatCompletionMessage) -> list[tuple[str, str]]:
    calls = message.tool_calls or []
    assert len({call.id for call in calls}) == len(calls)
    return [(call.function.name, call.function.arguments) for call in calls if call.type == "function"]


@pytest.mark.parametrize(
    "choice, names", [("required", {"get_weather", "get_time"}), (NAMED, {"get_weather"})], ids=["required", "named"]
)
def test_forced_calls(client: openai.OpenAI, choice: Any, names: set[str]) -> None:
    """Forced calls obey their schemas, and the stream joins to the same calls."""
    fields = {"tool_choice": choice, "parallel_tool_calls": False}
    whole = client.chat.completions.create(**ASK, **fields).choices[0]
    message, finish = streamed(client, **fields)
    found = functions(whole.message)
    assert found
    assert found == functions(message)
    assert whole.finish_reason == finish == "tool_calls"
    assert not whole.message.content
    for name, arguments in found:
        assert name in names
        value = json.loads(arguments)
        assert set(value) == {"city", "days"}
        assert (value["city"] in ("Paris", "Oslo"), value["days"] in (1, 2, 3)) == (True, True)


def test_a_turn_with_a_tool(client: openai.OpenAI) -> None:
    """What a client does: it sends the message with the calls back, with their results, and gets an answer."""
    message = client.chat.completions.create(**ASK, tool_choice=NAMED).choices[0].message
    assert message.tool_calls
    history = [*ASK["messages"], message.model_dump(exclude_none=True)]
    history += [{"role": "tool", "tool_call_id": call.id, "content": "20 degrees"} for call in message.tool_calls]
    again = {**ASK, "messages": history, "tool_choice": "none", "max_tokens": 8}
    answer = client.chat.completions.create(**again).choices[0]
    assert answer.message.content
    assert not answer.message.tool_calls


def test_arguments_that_are_cut_off(client: openai.OpenAI) -> None:
    """A call that is too long for max_tokens has what came of its arguments, whole and streamed."""
    fields = {"tool_choice": NAMED, "max_tokens": 24}
    whole = client.chat.completions.create(**{**ASK, **fields}).choices[0]
    chunks = list(client.chat.completions.create(**{**ASK, **fields}, stream=True))
    pieces = [call for chunk in chunks for call in chunk.choices[0].delta.tool_calls or []]
    ((name, arguments),) = functions(whole.message)
    assert (name, whole.finish_reason, chunks[-1].choices[0].finish_reason) == ("get_weather", "length", "length")
    assert "".join(piece.function.arguments or "" for piece in pieces if piece.function) == arguments
    assert '{"city": "Paris", "days": 1}'.startswith(arguments[:17])


def test_wrong_tools(client: openai.OpenAI) -> None:
    """A schema that cannot be obeyed is the client's exception, with the field in it."""
    tools: list[Any] = [
        {"type": "function", "function": {"name": "f", "parameters": {"properties": {"a": {"type": "x"}}}}}
    ]
    with pytest.raises(openai.BadRequestError) as raised:
        client.chat.completions.create(**{**ASK, "tools": tools}, tool_choice="required")
    assert raised.value.param == "tools"
