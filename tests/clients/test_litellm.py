"""litellm, by its three ways to reach a server like this one."""

from __future__ import annotations

import asyncio
from typing import Any

import litellm
import pytest

from .around import ANSWER, GREEDY, KEY, MESSAGES, MODEL, TIMEOUT_S, TOO_LONG, City

CHAT = pytest.mark.parametrize("provider", ["openai", "hosted_vllm"])


@pytest.fixture
def common(base_url: str) -> dict[str, Any]:
    return {"api_base": base_url, "api_key": KEY, "num_retries": 0, "timeout": TIMEOUT_S}


@CHAT
def test_stream_is_the_whole_answer(common: dict[str, Any], provider: str) -> None:
    """Chunks are put together to the whole answer, with its usage; the asynchronous call gives it, too."""
    ask = {"model": f"{provider}/{MODEL}", "messages": MESSAGES, **common, **GREEDY}
    whole = litellm.completion(**ask)
    assert whole.choices[0].message.content == ANSWER
    assert whole.choices[0].finish_reason == "stop"
    chunks = list(litellm.completion(stream=True, stream_options={"include_usage": True}, **ask))
    built = litellm.stream_chunk_builder(chunks)
    assert built.choices[0].message.content == ANSWER
    assert built.choices[0].finish_reason == "stop"
    for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
        assert built.usage[name] == whole.usage[name] > 0
    assert asyncio.run(litellm.acompletion(**ask)).choices[0].message.content == ANSWER


@CHAT
def test_parameters(common: dict[str, Any], provider: str) -> None:
    """What litellm translates arrives: choices, seeds, stops, penalties, log-probabilities, formats, vLLM's own."""
    ask = {"model": f"{provider}/{MODEL}", "messages": MESSAGES, **common, **GREEDY}
    stopped = litellm.completion(stop=[" Paris"], seed=1, top_p=0.9, presence_penalty=0.0, user="u", **ask)
    assert stopped.choices[0].message.content == "The capital of France is"
    two = litellm.completion(n=2, logprobs=True, top_logprobs=2, **ask)
    assert [choice.message.content for choice in two.choices] == [ANSWER] * 2
    assert [token.token for token in two.choices[1].logprobs.content][:2] == ["The", " capital"]
    city = litellm.completion(**{**ask, "max_tokens": 80}, response_format=City)
    assert City.model_validate_json(city.choices[0].message.content).country
    one = litellm.completion(extra_body={"structured_outputs": {"choice": ["Lyon"]}}, **ask)
    assert one.choices[0].message.content == "Lyon"


@CHAT
def test_errors(common: dict[str, Any], provider: str) -> None:
    """litellm's own exceptions, by which its router goes to another model."""
    ask = {"model": f"{provider}/{MODEL}", "messages": MESSAGES, **common}
    with pytest.raises(litellm.ContextWindowExceededError):
        litellm.completion(**{**ask, "messages": [{"role": "user", "content": TOO_LONG}]})
    with pytest.raises(litellm.NotFoundError):
        litellm.completion(**{**ask, "model": f"{provider}/other"})
    with pytest.raises(litellm.AuthenticationError):
        litellm.completion(**{**ask, "api_key": "wrong"})
    with pytest.raises(litellm.BadRequestError, match="top_p"):
        litellm.completion(top_p=7, **ask)


@pytest.mark.parametrize("provider", ["text-completion-openai", "hosted_vllm"])
def test_text_completions(common: dict[str, Any], provider: str) -> None:
    """The older route: several prompts, streams, the echoed prompt with its log-probabilities."""
    ask = {"model": f"{provider}/{MODEL}", "prompt": "One, two,", **common, **GREEDY}
    text = litellm.text_completion(**ask).choices[0].text
    chunks = litellm.text_completion(stream=True, **ask)
    assert "".join(chunk.choices[0].text or "" for chunk in chunks) == text
    echoed = litellm.text_completion(echo=True, logprobs=1, **ask).choices[0]
    assert echoed.text == "".join(echoed.logprobs.tokens) == "One, two," + text
    both = litellm.text_completion(**{**ask, "prompt": ["One, two,", "A, B, C,"]})
    assert [choice.index for choice in both.choices] == [0, 1]
    assert both.choices[0].text == text
