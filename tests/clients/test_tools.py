"""Tools through the three clients: calls that are forced, whole and streamed, and what is said after them.

What the small model calls of its own choice is not asserted; what it is made to call is.
"""

from __future__ import annotations

import json
from typing import Any, Literal

import litellm
import openai
import pytest
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI
from pydantic import BaseModel

from .around import KEY, MODEL, TIMEOUT_S

pytestmark = pytest.mark.skip(reason="waits for tool calls")


class Weather(BaseModel):
    """The weather of a city."""

    city: Literal["Paris", "Rome", "Oslo"]
    days: Literal[1, 2, 3]


MESSAGES: list[Any] = [{"role": "user", "content": "What is the weather in Paris?"}]
TOOLS: list[Any] = [openai.pydantic_function_tool(Weather)]
NAMED: Any = {"type": "function", "function": {"name": "Weather"}}
ASK: dict[str, Any] = {"messages": MESSAGES, "tools": TOOLS, "temperature": 0, "max_tokens": 120}
FORCED = pytest.mark.parametrize("choice", [NAMED, "required"], ids=["named", "required"])


def is_call(name: str, arguments: str) -> None:
    assert name == "Weather"
    Weather.model_validate_json(arguments)


@FORCED
def test_openai(client: openai.OpenAI, choice: Any) -> None:
    """A forced call has arguments of its schema; the stream joins to the same call."""
    whole = client.chat.completions.create(model=MODEL, tool_choice=choice, **ASK).choices[0]
    assert whole.finish_reason in ("stop", "tool_calls")
    assert whole.message.tool_calls
    for call in whole.message.tool_calls:
        assert call.id and call.type == "function"
        is_call(call.function.name, call.function.arguments)
    with client.chat.completions.stream(model=MODEL, tool_choice=choice, **ASK) as stream:
        kinds = {event.type for event in stream}
        streamed = stream.get_final_completion().choices[0]
    assert {"tool_calls.function.arguments.delta", "tool_calls.function.arguments.done"} <= kinds
    assert streamed.finish_reason == whole.finish_reason
    for ours, theirs in zip(streamed.message.tool_calls or [], whole.message.tool_calls, strict=True):
        assert (ours.function.name, ours.function.arguments) == (theirs.function.name, theirs.function.arguments)


def test_openai_parses_arguments(client: openai.OpenAI) -> None:
    """The arguments of a call come as an instance of the pydantic model that described it."""
    parsed = client.chat.completions.parse(model=MODEL, tool_choice="required", **ASK).choices[0].message
    assert parsed.tool_calls
    assert isinstance(parsed.tool_calls[0].function.parsed_arguments, Weather)


def test_the_model_may_call_or_not(client: openai.OpenAI) -> None:
    """By its own choice the model calls or speaks, and never both at once in one text; with `none` it speaks."""
    chosen = client.chat.completions.create(model=MODEL, parallel_tool_calls=False, **ASK).choices[0].message
    assert chosen.tool_calls or chosen.content
    told = client.chat.completions.create(model=MODEL, tool_choice="none", **ASK).choices[0].message
    assert told.content and not told.tool_calls


def test_conversation_goes_on_after_a_call(client: openai.OpenAI) -> None:
    """A message with calls, as the client dumps it, and the tool's answer are messages of the next request."""
    called = client.chat.completions.create(model=MODEL, tool_choice="required", **ASK).choices[0].message
    assert called.tool_calls
    results = [{"role": "tool", "tool_call_id": call.id, "content": "Sunny."} for call in called.tool_calls]
    more = {**ASK, "messages": [*MESSAGES, called.model_dump(), *results], "tool_choice": "none"}
    assert client.chat.completions.create(model=MODEL, **more).choices[0].message.content


def test_langchain(base_url: str) -> None:
    """Bound tools give tool calls, whole and streamed; structured output by function calling; tool messages."""
    chat = ChatOpenAI(
        model=MODEL, base_url=base_url, api_key=KEY, temperature=0, max_tokens=120, max_retries=0, timeout=TIMEOUT_S
    )
    bound = chat.bind_tools([Weather], tool_choice="Weather")
    question = HumanMessage(MESSAGES[0]["content"])
    called = bound.invoke([question])
    (call,) = called.tool_calls
    is_call(call["name"], json.dumps(call["args"]))
    first, *others = bound.stream([question])
    (streamed,) = sum(others, first).tool_calls
    assert (streamed["name"], streamed["args"]) == (call["name"], call["args"])
    assert isinstance(chat.with_structured_output(Weather, method="function_calling").invoke([question]), Weather)
    assert chat.invoke([question, called, ToolMessage("Sunny.", tool_call_id=call["id"])]).content


@pytest.mark.parametrize("provider", ["openai", "hosted_vllm"])
def test_litellm(base_url: str, provider: str) -> None:
    """A named call through litellm, whole and put together from a stream."""
    ask = {"model": f"{provider}/{MODEL}", "api_base": base_url, "api_key": KEY, "timeout": TIMEOUT_S, **ASK}
    (whole,) = litellm.completion(tool_choice=NAMED, **ask).choices[0].message.tool_calls
    is_call(whole.function.name, whole.function.arguments)
    chunks = list(litellm.completion(tool_choice=NAMED, stream=True, **ask))
    (built,) = litellm.stream_chunk_builder(chunks).choices[0].message.tool_calls
    assert (built.function.name, built.function.arguments) == (whole.function.name, whole.function.arguments)
