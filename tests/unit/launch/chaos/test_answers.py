"""A stream put together, and answers held against each other."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fourstroke.launch.chaos.answers import LOGPROB_TOLERANCE, difference, put_together
from fourstroke.launch.completions import Choice, Completion, TokenLogprob, read_completion

USAGE = {"prompt_tokens": 3, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 0}}
LOGPROBS = (TokenLogprob("a", -0.5, {"a": -0.5, "b": -1.0}), TokenLogprob("b", -0.25, {"b": -0.25}))
ANSWER = Completion("p", (Choice("ab", "stop", "x", LOGPROBS), Choice("cd", "length", None)), 3, 4, 0)

TEXTS = st.lists(st.lists(st.text(max_size=3), min_size=1, max_size=5), min_size=1, max_size=3)


@given(TEXTS, st.randoms())
def test_completions(texts: list[list[str]], dice: Any) -> None:
    """However the choices' pieces come between each other, the whole is their texts, log-probabilities and ends."""
    pieces = [(index, number) for index, some in enumerate(texts) for number in range(len(some))]
    dice.shuffle(pieces)
    order = {index: iter(range(len(some))) for index, some in enumerate(texts)}
    events = [_event(index, next(order[index]), texts[index]) for index, _ in pieces]
    whole = put_together([*events, {"choices": [], "usage": USAGE}])
    answer = read_completion("p", whole)
    assert [choice.text for choice in answer.choices] == ["".join(some) for some in texts]
    assert {choice.finish_reason for choice in answer.choices} == {"stop"}
    for choice, some in zip(answer.choices, texts, strict=True):
        assert choice.logprobs is not None
        assert [entry.token for entry in choice.logprobs] == some


def _event(index: int, number: int, texts: list[str]) -> dict[str, Any]:
    text, last = texts[number], number == len(texts) - 1
    logprobs = {"tokens": [text], "token_logprobs": [-1.0], "top_logprobs": [{text: -1.0}]}
    choice = {"index": index, "text": text, "logprobs": logprobs, "finish_reason": "stop" if last else None}
    return {"choices": [choice]}


def test_chat() -> None:
    """Deltas add up to a message, whatever else they hold; the usage may come with an event of a choice."""
    deltas = [{"role": "assistant", "content": ""}, {"content": "a"}, {"content": "b"}, {}]
    events: list[dict[str, Any]] = [{"choices": [{"index": 0, "delta": d, "finish_reason": None}]} for d in deltas]
    events[-1]["choices"][0]["finish_reason"] = "stop"
    events[-1]["usage"] = USAGE
    answer = read_completion("p", put_together(events))
    assert (answer.text, answer.finish_reason, answer.prompt_tokens) == ("ab", "stop", 3)


def test_a_stream_without_usage() -> None:
    """Is none that can be compared."""
    with pytest.raises(KeyError):
        put_together([{"choices": []}])


def _changed(**fields: Any) -> Completion:
    """The answer with another first choice."""
    return dataclasses.replace(ANSWER, choices=(dataclasses.replace(ANSWER.choices[0], **fields), ANSWER.choices[1]))


@pytest.mark.parametrize(
    "found, said",
    [
        (dataclasses.replace(ANSWER, prompt_tokens=4), "4 prompt tokens instead of 3"),
        (dataclasses.replace(ANSWER, completion_tokens=5), "5 completion tokens"),
        (dataclasses.replace(ANSWER, choices=ANSWER.choices[:1]), "1 choices instead of 2"),
        (_changed(text="aX"), "from character 1"),
        (_changed(text="abc"), "from character 2"),
        (_changed(finish_reason="length"), "finish reason 'length'"),
        (_changed(stop_reason=None), "stop reason None"),
        (_changed(logprobs=None), "at token 0"),
        (_changed(logprobs=LOGPROBS[:1]), "at token 1"),
        (_changed(logprobs=(LOGPROBS[0], TokenLogprob("c", -0.25, {"b": -0.25}))), "at token 1"),
        (_changed(logprobs=(LOGPROBS[0], TokenLogprob("b", -0.25, {"c": -0.25}))), "at token 1"),
        (_changed(logprobs=(LOGPROBS[0], TokenLogprob("b", -0.25, {"b": -0.3}))), "at token 1"),
        (_changed(logprobs=(LOGPROBS[0], TokenLogprob("b", -0.3, {"b": -0.25}))), "at token 1"),
    ],
)
def test_every_difference_is_seen(found: Completion, said: str) -> None:
    """It is told which one; both ways round."""
    assert said in difference(ANSWER, found)
    assert difference(found, ANSWER)


def test_what_is_none() -> None:
    """The same answer, another share of it from the cache, and sums of another order."""
    nearly = TokenLogprob("b", -0.25 + LOGPROB_TOLERANCE / 2, {"b": -0.25 - LOGPROB_TOLERANCE / 2})
    assert difference(ANSWER, ANSWER) == ""
    assert difference(ANSWER, dataclasses.replace(ANSWER, cached_tokens=3)) == ""
    assert difference(ANSWER, _changed(logprobs=(LOGPROBS[0], nearly))) == ""
