"""Log-probabilities and echoed prompts as a client sees them, in front of an engine that the tests direct."""

import asyncio
import dataclasses
from typing import Any

import httpx
import numpy as np
import pytest
from openai.types import Completion
from openai.types.chat import ChatCompletion

from fourstroke.common.errors import BadMessage
from fourstroke.common.types import Finish
from fourstroke.ipc.logprobs import Words, pack
from fourstroke.ipc.messages import NO_LOGPROBS, Text

from .surroundings import CHAT, COMPLETIONS, Surroundings, ending, events, text

HI: dict[str, dict[str, Any]] = {
    COMPLETIONS: {"prompt": "Hi"},
    CHAT: {"messages": [{"role": "user", "content": "Hi"}]},
}
PATHS = pytest.mark.parametrize("path", [COMPLETIONS, CHAT], ids=["completions", "chat"])
STREAMED = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "stream"])


def asked(path: str, top: int) -> dict[str, Any]:
    """The fields that ask for log-probabilities."""
    return {"logprobs": top} if path == COMPLETIONS else {"logprobs": True, "top_logprobs": top}


def words(count: int, first: int = 0) -> Words:
    """Log-probabilities -first-1, -first-2, ... of so many tokens, with one alternative: id 35, always -0.5."""
    found = np.zeros((count, 3), np.int32)
    found[:, 0] = (-np.arange(first + 1, first + 1 + count)).astype(np.float32).view(np.int32)
    found[:, 1], found[:, 2] = 35, np.float32(-0.5).view(np.int32)
    return found


def said(rid: int, delta: str, ids: list[int], first: int = 0, **fields: Any) -> Text:
    """Text of one request and its tokens, with log-probabilities -first-1, -first-2, ..."""
    message = text((rid, delta, len(ids)), **fields)
    token_ids = np.array(ids, np.int32).tobytes()
    return dataclasses.replace(message, token_ids=token_ids, logprobs=pack([(rid, words(len(ids), first))]))


def ask(around: Surroundings, path: str, answers: list[Any], **fields: Any) -> httpx.Response:
    """The answer to a request to which the engine says one thing after the other; each is made of its rid."""
    around.engine.by_hand = True

    async def run() -> httpx.Response:
        asking = asyncio.create_task(around.post(path, {**HI[path], **fields}))
        await around.engine.until(1, around.engine.submits)
        for answer in answers:
            around.service.table.deliver(answer(around.engine.rids[0]))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        return await asking

    return asyncio.run(run())


def choices(response: httpx.Response, streamed: bool) -> list[Any]:
    """The choices of an answer or of the chunks of a stream."""
    assert response.status_code == 200, response.text
    found = events(response) if streamed else [response.json()]
    return [choice for part in found for choice in part["choices"]]


def shown(choice: dict[str, Any]) -> str:
    part = choice.get("message") or choice.get("delta") or {"content": choice.get("text")}
    return part.get("content") or ""


def scores(choice: dict[str, Any]) -> list[float | None]:
    """The log-probabilities in a choice of either route."""
    found = choice["logprobs"]
    if found is None:
        return []
    return found["token_logprobs"] if "tokens" in found else [entry["logprob"] for entry in found["content"]]


# Said: "ab", then two tokens without text (a stop string might begin), then the text of three, then EOS.
ANSWERS = [
    lambda rid: said(rid, "ab", [66, 67]),
    lambda rid: said(rid, "", [68], 2),
    lambda rid: said(rid, "", [69], 3),
    lambda rid: said(rid, "cde", [70], 4),
    lambda rid: said(rid, "", [0], 5, endings=(ending(rid, Finish.STOP, 6),)),
]


@PATHS
@STREAMED
def test_every_token_has_its_entry(around: Surroundings, path: str, streamed: bool) -> None:
    """Text and log-probabilities are the same in a stream and whole: one entry for each token that is counted."""
    found = choices(ask(around, path, ANSWERS, stream=streamed, **asked(path, 1)), streamed)
    assert "".join(map(shown, found)) == "abcde"
    assert [score for choice in found for score in scores(choice)] == [-1, -2, -3, -4, -5, -6]
    (submit,) = around.engine.submits
    assert (submit.sampling.logprobs, submit.sampling.prompt_logprobs) == (1, NO_LOGPROBS)


@PATHS
def test_entries_go_with_their_text(around: Surroundings, path: str) -> None:
    """A chunk has the entries of the tokens behind its text; those of tokens without any come with the end."""
    found = choices(ask(around, path, ANSWERS, stream=True, **asked(path, 1)), True)
    found = [(shown(choice), scores(choice), choice["finish_reason"]) for choice in found]
    assert found[path == CHAT :] == [("ab", [-1, -2], None), ("cde", [-3, -4, -5], None), ("", [-6], "stop")]
    assert found[: path == CHAT] == [("", [], None)] * (path == CHAT)


@PATHS
@STREAMED
def test_none_unless_asked_for(around: Surroundings, path: str, streamed: bool) -> None:
    """Without a wish, logprobs is null in every choice."""
    found = choices(ask(around, path, ANSWERS, stream=streamed), streamed)
    assert [choice["logprobs"] for choice in found] == [None] * len(found)
    assert around.engine.submits[0].sampling.logprobs == NO_LOGPROBS


def test_shape_of_chat(around: Surroundings) -> None:
    """An entry has the token, its log-probability, its bytes and as many alternatives as were asked for."""
    (choice,) = choices(ask(around, CHAT, ANSWERS, **asked(CHAT, 1)), False)
    names = around.service.names.tokenizer.token_bytes
    first = choice["logprobs"]["content"][0]
    alternative = {"token": names[35].decode(), "logprob": -0.5, "bytes": list(names[35])}
    assert first == {
        "token": names[66].decode(),
        "logprob": -1,
        "bytes": list(names[66]),
        "top_logprobs": [alternative],
    }


def test_shape_of_completions(around: Surroundings) -> None:
    """Four lists of one length; the token itself is always among the alternatives."""
    (choice,) = choices(ask(around, COMPLETIONS, ANSWERS, **asked(COMPLETIONS, 1)), False)
    found = choice["logprobs"]
    names = [around.service.names.tokenizer.token_bytes[token].decode() for token in (66, 67, 68, 69, 70, 0)]
    assert list(found) == ["tokens", "token_logprobs", "top_logprobs", "text_offset"]
    assert found["tokens"] == names
    assert found["text_offset"] == [0, 1, 2, 3, 4, 5]
    other = around.service.names.tokenizer.token_bytes[35].decode()
    assert found["top_logprobs"] == [{name: -1.0 - place, other: -0.5} for place, name in enumerate(names)]


# Echo


def prompt_words(rid: int, count: int, first: int = 0) -> Text:
    return Text(b"", b"", (), b"", (), prompt_logprobs=pack([(rid, words(count, first))]))


@STREAMED
@pytest.mark.parametrize("top", [None, 1])
def test_echo(around: Surroundings, streamed: bool, top: int | None) -> None:
    """The text is the prompt and what was generated, and so are its tokens; the first has no log-probability."""
    prompt = "The quick brown fox jumps over"
    length = len(around.service.names.tokenizer.encode_prompt(prompt))
    assert length > 3
    answers = [lambda rid: prompt_words(rid, 2), lambda rid: prompt_words(rid, length - 3, 2)] if top else []
    response = ask(around, COMPLETIONS, [*answers, *ANSWERS], prompt=prompt, echo=True, stream=streamed, logprobs=top)
    found = choices(response, streamed)
    assert "".join(map(shown, found)) == prompt + "abcde"
    sampling = around.engine.submits[0].sampling
    assert sampling.logprobs == sampling.prompt_logprobs == (NO_LOGPROBS if top is None else top)
    if top:
        expected = [None, *(-1 - place for place in range(length - 1)), -1, -2, -3, -4, -5, -6]
        assert [score for choice in found for score in scores(choice)] == expected
        offsets = [place for choice in found if choice["logprobs"] for place in choice["logprobs"]["text_offset"]]
        assert offsets == sorted(offsets)
        assert offsets[length] == len(prompt)


@STREAMED
@pytest.mark.parametrize("top", [None, 0])
@pytest.mark.parametrize("prompt", ["1, 2,", [20, 15, 0, 253]], ids=["text", "ids"])
def test_echo_without_generation(around: Surroundings, streamed: bool, top: int | None, prompt: Any) -> None:
    """With max_tokens 0 the answer is the prompt: as it was sent, or as the text of the ids that were."""
    length = len(around.service.names.tokenizer.encode_prompt(prompt)) if isinstance(prompt, str) else len(prompt)
    end = [lambda rid: text(endings=(ending(rid, Finish.LENGTH, 0),))]
    answers = [lambda rid: prompt_words(rid, length - 1), *end] if top == 0 else end
    response = ask(around, COMPLETIONS, answers, prompt=prompt, echo=True, max_tokens=0, stream=streamed, logprobs=top)
    found = choices(response, streamed)
    expected = prompt if isinstance(prompt, str) else around.service.names.tokenizer.decode(prompt)
    assert "".join(map(shown, found)) == expected
    assert found[-1]["finish_reason"] == "length"
    expected_scores = [None, *range(-1, -length, -1)] if top == 0 else []
    assert [score for choice in found for score in scores(choice)] == expected_scores
    assert around.engine.submits[0].limits.max_tokens == 0
    if not streamed:
        assert response.json()["usage"]["completion_tokens"] == 0


@STREAMED
def test_echo_of_several_prompts(around: Surroundings, streamed: bool) -> None:
    """Each choice has its own prompt before it, once."""
    fields = {"prompt": ["a ", "bc "], "n": 2, "echo": True, "max_tokens": 2, "stream": streamed}
    response = asyncio.run(around.post(COMPLETIONS, fields))
    found = dict.fromkeys(range(4), "")
    for choice in choices(response, streamed):
        found[choice["index"]] += choice["text"]
    assert list(found.values()) == ["a w0 w1 ", "a w0 w1 ", "bc w0 w1 ", "bc w0 w1 "]


def test_aborted_before_the_prompt_was_computed(around: Surroundings) -> None:
    """What there is is sent: the prompt, and for log-probabilities that never came null."""
    answers = [lambda rid: text(endings=(ending(rid, Finish.ABORT, 0),))]
    (choice,) = choices(ask(around, COMPLETIONS, answers, prompt=[20, 21], echo=True, logprobs=1), False)
    assert (scores(choice), choice["finish_reason"]) == ([None, None], "abort")


# What output could send that cannot be


@pytest.mark.parametrize(
    "wrong",
    [
        {"logprobs": pack([(1, words(1))])},
        {"logprobs": pack([(1, words(3))])},
        {"logprobs": pack([(99, words(2))])},
        {"logprobs": dataclasses.replace(pack([(1, words(2))]), values=b"")},
        {"prompt_logprobs": dataclasses.replace(pack([(1, words(2))]), tops=b"")},
    ],
    ids=["fewer", "more", "of-nobody", "no-values", "no-tops"],
)
def test_bad_texts(around: Surroundings, wrong: dict[str, Any]) -> None:
    """Log-probabilities that are not those of the rows are a bad message, of which nothing is used."""
    around.engine.by_hand = True

    async def run() -> None:
        asking = asyncio.create_task(around.post(COMPLETIONS, {"prompt": "Hi", "logprobs": 1}))
        await around.engine.until(1, around.engine.submits)
        rid = around.engine.rids[0]
        with pytest.raises(BadMessage):
            around.service.table.deliver(dataclasses.replace(said(rid, "ab", [66, 67]), **wrong))
        around.service.table.deliver(said(rid, "c", [68], endings=(ending(rid, Finish.LENGTH),)))
        (choice,) = (await asking).json()["choices"]
        assert (choice["text"], scores(choice)) == ("c", [-1])

    asyncio.run(run())


@pytest.mark.parametrize("path, kind", [(CHAT, ChatCompletion), (COMPLETIONS, Completion)])
def test_official_client_reads_them(around: Surroundings, path: str, kind: type[Completion | ChatCompletion]) -> None:
    """openai-python's types accept the objects of both routes."""
    found = kind.model_validate(ask(around, path, ANSWERS, **asked(path, 1)).json())
    assert found.choices[0].logprobs is not None
