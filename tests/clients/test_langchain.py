"""langchain-openai: models of chat and of completions, their streams, batches, usage and structured output."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langchain_core.exceptions import ContextOverflowError, ModelNotFoundError
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_openai import ChatOpenAI, OpenAI

from .around import ANSWER, GREEDY, KEY, MODEL, QUESTION, TIMEOUT_S, TOO_LONG, City


@pytest.fixture
def common(base_url: str) -> dict[str, Any]:
    return {"model": MODEL, "base_url": base_url, "api_key": KEY, "max_retries": 0, "timeout": TIMEOUT_S}


@pytest.fixture
def chat(common: dict[str, Any]) -> ChatOpenAI:
    return ChatOpenAI(**common, **GREEDY)


def test_stream_is_the_whole_answer(chat: ChatOpenAI) -> None:
    """Chunks add up to the message of invoke, with its usage and its finish reason."""
    whole = chat.invoke(QUESTION)
    assert whole.content == ANSWER
    assert whole.response_metadata["finish_reason"] == "stop"
    first, *others = chat.stream(QUESTION, stream_usage=True)
    added = sum(others, first)
    assert added.content == ANSWER
    assert added.response_metadata["finish_reason"] == "stop"
    assert added.usage_metadata and whole.usage_metadata
    for name in ("input_tokens", "output_tokens", "total_tokens"):
        assert added.usage_metadata[name] == whole.usage_metadata[name] > 0


def test_batches(chat: ChatOpenAI) -> None:
    """A batch, in threads or asynchronous, has the answers that each question has alone."""
    questions = [QUESTION, "Hi", "What is 2+2?", "Count to three."]
    alone = [chat.invoke(question).content for question in questions]
    assert [message.content for message in chat.batch(questions)] == alone
    assert [message.content for message in asyncio.run(chat.abatch(questions))] == alone


def test_conversation(chat: ChatOpenAI) -> None:
    """All kinds of messages, an answer among them, make the next request."""
    messages = [SystemMessage("You are brief."), HumanMessage(QUESTION), AIMessage(ANSWER), HumanMessage("And Spain?")]
    assert "Spain" in str(chat.invoke(messages).content)


def test_bound_parameters(chat: ChatOpenAI) -> None:
    """Parameters that are bound to a model arrive: a stop string, log-probabilities, vLLM's own."""
    assert chat.bind(stop=[" Paris"]).invoke(QUESTION).content == "The capital of France is"
    scored = chat.bind(logprobs=True, top_logprobs=2).invoke(QUESTION).response_metadata["logprobs"]["content"]
    assert "".join(token["token"] for token in scored).startswith(ANSWER)
    assert all(len(token["top_logprobs"]) == 2 for token in scored)
    assert chat.bind(extra_body={"structured_outputs": {"choice": ["Lyon"]}}).invoke(QUESTION).content == "Lyon"


def test_structured_output(common: dict[str, Any]) -> None:
    """A pydantic model as the output gives an instance of it: invoked, streamed, and beside the raw message."""
    chat = ChatOpenAI(**common, temperature=0, max_tokens=80)
    city = chat.with_structured_output(City, method="json_schema").invoke(QUESTION)
    assert isinstance(city, City)
    both = chat.with_structured_output(City, method="json_schema", include_raw=True).invoke(QUESTION)
    assert both["parsed"] == city == City.model_validate_json(both["raw"].content)
    *_, last = chat.with_structured_output(City, method="json_schema").stream(QUESTION)
    assert last == city


def test_errors(chat: ChatOpenAI, common: dict[str, Any]) -> None:
    """langchain tells a prompt that is too long, and a model that is not there, from other errors."""
    with pytest.raises(ContextOverflowError):
        chat.invoke(TOO_LONG)
    with pytest.raises(ModelNotFoundError):
        ChatOpenAI(**{**common, "model": "other"}).invoke(QUESTION)


def test_completions(common: dict[str, Any]) -> None:
    """The older route: streams, and batches of prompts in one request."""
    model = OpenAI(**common, **GREEDY)
    text = model.invoke("One, two,")
    assert "".join(model.stream("One, two,")) == text
    (first,), (second,) = model.generate(["One, two,", "A, B, C,"]).generations
    assert first.text == text
    assert second.text == model.invoke("A, B, C,")
