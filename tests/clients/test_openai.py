"""The official client: what it asks on both routes, and what it makes of the answers."""

from __future__ import annotations

import asyncio
import json

import openai
import pytest

from .around import ANSWER, GREEDY, KEY, MESSAGES, MODEL, QUESTION, TIMEOUT_S, City

USAGE = {"include_usage": True}


def test_models(client: openai.OpenAI) -> None:
    """The served model is listed, and is found by its name."""
    (listed,) = client.models.list().data
    assert listed.id == MODEL
    assert client.models.retrieve(MODEL) == listed


def test_chat_stream_is_the_whole_answer(client: openai.OpenAI) -> None:
    """Deltas join to the whole text; the role comes first, the finish reason last, the usage after it."""
    whole = client.chat.completions.create(model=MODEL, messages=MESSAGES, **GREEDY)
    assert whole.choices[0].message.content == ANSWER
    assert whole.choices[0].message.tool_calls is None
    *chunks, usage = client.chat.completions.create(
        model=MODEL, messages=MESSAGES, stream=True, stream_options=USAGE, **GREEDY
    )
    choices = [chunk.choices[0] for chunk in chunks]
    assert "".join(choice.delta.content or "" for choice in choices) == ANSWER
    assert [choice.delta.role for choice in choices] == ["assistant"] + [None] * (len(choices) - 1)
    assert [choice.finish_reason for choice in choices] == [None] * (len(choices) - 1) + ["stop"]
    assert all(chunk.usage is None for chunk in chunks)
    assert usage.choices == []
    assert usage.usage and whole.usage
    assert usage.usage.total_tokens == whole.usage.total_tokens == whole.usage.prompt_tokens + 8
    assert len({(chunk.id, chunk.created, chunk.model, chunk.object) for chunk in [*chunks, usage]}) == 1


def test_completion_stream_is_the_whole_answer(client: openai.OpenAI) -> None:
    """The same on the older route, with log-probabilities and the echoed prompt."""
    ask = {"model": MODEL, "prompt": "One, two,", "logprobs": 2, "echo": True, **GREEDY}
    whole = client.completions.create(**ask).choices[0]
    chunks = [chunk.choices[0] for chunk in client.completions.create(stream=True, **ask)]
    assert "".join(chunk.text for chunk in chunks) == whole.text
    scored = [chunk.logprobs for chunk in chunks if chunk.logprobs is not None]
    assert whole.logprobs is not None
    for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
        streamed = [value for one in scored for value in getattr(one, name)]
        assert streamed == getattr(whole.logprobs, name)
    assert "".join(whole.logprobs.tokens or []) == whole.text
    assert whole.logprobs.token_logprobs and whole.logprobs.token_logprobs[0] is None


def test_prompt_alone_is_scored(client: openai.OpenAI) -> None:
    """An echo of no token is the prompt with its log-probabilities, as older evaluations ask for them."""
    ask = {"model": MODEL, "prompt": "One, two,", "logprobs": 1, "echo": True, "temperature": 0}
    alone, more = (client.completions.create(max_tokens=most, **ask).choices[0] for most in (0, 1))
    assert alone.text == ask["prompt"]
    assert alone.logprobs and more.logprobs
    assert alone.logprobs.token_logprobs == (more.logprobs.token_logprobs or [])[:-1]


def test_eight_at_once(base_url: str, client: openai.OpenAI) -> None:
    """The asynchronous client, eight requests at a time: each answer is the one that it is alone."""
    questions = [f"{QUESTION[:-1]} and of {country}?" for country in ("Spain", "Italy", "Japan", "Peru")] * 2

    async def all_at_once() -> list[str | None]:
        async with openai.AsyncOpenAI(base_url=base_url, api_key=KEY, max_retries=0, timeout=TIMEOUT_S) as clients:
            return await asyncio.gather(*(ask(clients, question) for question in questions))

    async def ask(clients: openai.AsyncOpenAI, question: str) -> str:
        stream = await clients.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": question}], stream=True, **GREEDY
        )
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    answers = asyncio.run(all_at_once())
    assert answers[:4] == answers[4:]
    alone = client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": questions[3]}], **GREEDY)
    assert answers[3] == alone.choices[0].message.content


def test_chat_logprobs(client: openai.OpenAI) -> None:
    """Tokens' bytes are the text, a greedy token is the best of its alternatives, and streams have the same values.

    Without `top_logprobs` there are no alternatives.
    """
    ask = {"model": MODEL, "messages": MESSAGES, "logprobs": True, "top_logprobs": 3, **GREEDY}
    whole = client.chat.completions.create(**ask).choices[0]
    assert whole.logprobs and whole.logprobs.content
    said = whole.logprobs.content
    assert b"".join(bytes(token.bytes or []) for token in said[:-1]).decode() == ANSWER
    for token in said:
        assert (token.token, token.logprob) == (token.top_logprobs[0].token, token.top_logprobs[0].logprob)
        assert len(token.top_logprobs) == 3
    chunks = client.chat.completions.create(stream=True, **ask)
    scored = [chunk.choices[0].logprobs for chunk in chunks]
    assert [token for one in scored if one for token in one.content or []] == said
    bare = client.chat.completions.create(**{**ask, "top_logprobs": None}).choices[0].logprobs
    assert bare and [(token.logprob, token.top_logprobs) for token in bare.content or []] == [
        (token.logprob, []) for token in said
    ]


def test_choices_and_seeds(client: openai.OpenAI) -> None:
    """Choices of one seed differ among each other, and are the same when asked again; unseeded ones are fresh."""
    ask = {"model": MODEL, "messages": MESSAGES, "n": 3, "max_tokens": 8, "temperature": 1.5}
    first, second = (
        [choice.message.content for choice in client.chat.completions.create(seed=7, **ask).choices] for _ in range(2)
    )
    assert first == second
    assert len(set(first)) == 3
    fresh = [choice.message.content for choice in client.chat.completions.create(**ask).choices]
    assert fresh != first


@pytest.mark.parametrize("prompts", [["One, two,", "A, B, C,"], [[3509, 28, 827, 28], [49, 28, 389, 28, 340, 28]]])
def test_several_prompts(client: openai.OpenAI, prompts: list) -> None:
    """Texts or ids: n choices for each prompt, in the order of the prompts, as each has alone."""
    together = client.completions.create(model=MODEL, prompt=prompts, n=2, best_of=2, **GREEDY).choices
    assert [choice.index for choice in together] == [0, 1, 2, 3]
    alone = [client.completions.create(model=MODEL, prompt=prompt, **GREEDY).choices[0].text for prompt in prompts]
    assert [choice.text for choice in together] == [text for text in alone for _ in range(2)]


def test_parsed_answers(client: openai.OpenAI) -> None:
    """A pydantic model as the format gives an instance of it, whole and streamed."""
    ask = {"model": MODEL, "messages": MESSAGES, "response_format": City, "temperature": 0, "max_tokens": 80}
    message = client.chat.completions.parse(**ask).choices[0].message
    assert isinstance(message.parsed, City)
    assert message.parsed == City.model_validate_json(message.content or "")
    with client.chat.completions.stream(**ask) as stream:
        kinds = {event.type for event in stream}
        assert stream.get_final_completion().choices[0].message.parsed == message.parsed
    assert kinds == {"chunk", "content.delta", "content.done"}


def test_json_object(client: openai.OpenAI) -> None:
    """JSON mode gives an object, and one that the length cuts is not taken for a whole one."""
    messages = [{"role": "user", "content": 'Say {"a": 1} as JSON.'}]
    ask = {"model": MODEL, "messages": messages, "response_format": {"type": "json_object"}, "temperature": 0}
    answer = client.chat.completions.create(max_tokens=100, **ask).choices[0]
    if answer.finish_reason == "stop":
        assert isinstance(json.loads(answer.message.content or ""), dict)
    assert client.chat.completions.create(max_tokens=2, **ask).choices[0].finish_reason == "length"
    with pytest.raises(openai.LengthFinishReasonError):
        client.chat.completions.parse(model=MODEL, messages=MESSAGES, response_format=City, max_tokens=3)


def test_raw_responses(client: openai.OpenAI) -> None:
    """Headers reach the client: the type of the content, and the request's id, the given one or a fresh one."""
    create = client.chat.completions.with_raw_response.create
    raw = create(model=MODEL, messages=MESSAGES, extra_headers={"X-Request-Id": "mine-1"}, **GREEDY)
    assert raw.headers["content-type"] == "application/json"
    assert raw.parse()._request_id == raw.headers["x-request-id"] == "mine-1"
    ids = {client.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=1)._request_id for _ in range(2)}
    assert len(ids) == 2
    streamed = client.chat.completions.with_streaming_response
    with streamed.create(model=MODEL, messages=MESSAGES, stream=True, **GREEDY) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        lines = [line for line in response.iter_lines() if line]
    assert lines.pop() == "data: [DONE]"
    deltas = [json.loads(line.removeprefix("data: "))["choices"][0]["delta"] for line in lines]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert {tuple(delta) for delta in deltas[1:-1]} == {("content",)}, "strict clients take no null for a role"
    assert deltas[-1] == {}


def test_stop_and_steering(client: openai.OpenAI) -> None:
    """A stop string ends the text before it; vLLM's own parameters go in the extra body."""
    ask = {"model": MODEL, "messages": MESSAGES, **GREEDY}
    answer = client.chat.completions.create(stop=[" Paris"], **ask).choices[0]
    assert (answer.message.content, answer.finish_reason) == ("The capital of France is", "stop")
    choice = {"structured_outputs": {"choice": ["Lyon", "Nice"]}, "top_k": 1, "min_p": 0.0}
    assert client.chat.completions.create(extra_body=choice, **ask).choices[0].message.content in ("Lyon", "Nice")


def test_conversation_goes_on_with_what_was_answered(client: openai.OpenAI) -> None:
    """An answer as the client dumps it, null fields and all, is a message of the next request."""
    answer = client.chat.completions.create(model=MODEL, messages=MESSAGES, **GREEDY).choices[0].message
    more = [*MESSAGES, answer.model_dump(), {"role": "user", "content": "And of Spain?"}]
    short = [*MESSAGES, {"role": "assistant", "content": ANSWER}, more[-1]]
    texts = [client.chat.completions.create(model=MODEL, messages=messages, **GREEDY) for messages in (more, short)]
    assert texts[0].choices[0].message.content == texts[1].choices[0].message.content
