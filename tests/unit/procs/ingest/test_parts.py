"""Parts of a choice: together they are the whole, and each token's place is where its text stands."""

import asyncio
import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fourstroke.ipc.logprobs import Words
from fourstroke.ipc.messages import NO_LOGPROBS, Limits, Sampling
from fourstroke.procs.detokenizer import Detokenizer
from fourstroke.procs.ingest import parts as parts_module
from fourstroke.procs.ingest.fields import Route
from fourstroke.procs.ingest.live import Choice, LiveRequest, NewTokens
from fourstroke.procs.ingest.message import text_of
from fourstroke.procs.ingest.parts import Part, Parts
from fourstroke.procs.ingest.token_names import TokenNames
from fourstroke.procs.ingest.tools.deltas import Content

LISTS = ("tokens", "token_logprobs", "top_logprobs", "text_offset")
BOTH = pytest.mark.parametrize("route", ["completions", "chat"])
ids = st.lists(st.sampled_from([0, 1, 30, 35, 182, 248, 253, 258, 290, 330, 399, 400, 2**31 - 1]), max_size=8)


def choice(
    prompt: Sequence[int] = (5,), logprobs: int = 0, echo: str | None = None, skip_special: bool = True
) -> Choice:
    """The only choice of a request's second prompt."""
    request = LiveRequest("r", (), False, skip_special)
    request.echoes = [] if echo is None else ["another prompt", echo]
    sampling = Sampling(0, 0, 1, 0, logprobs=logprobs, prompt_logprobs=logprobs if echo else NO_LOGPROBS)
    return Choice(request, 1, 0, 0, 1, np.array(prompt, np.int32), b"", sampling, Limits(9, 0, False, ()))


def words(count: int, top: int = 0, first: int = 0) -> Words:
    """Log-probabilities -first-1, -first-2, ... of so many tokens."""
    found = np.zeros((count, 1 + 2 * top), np.int32)
    found[:, 0] = (-np.arange(first + 1, first + 1 + count)).astype(np.float32).view(np.int32)
    return found


def new(tokens: list[int], first: int = 0, top: int = 0) -> NewTokens:
    return NewTokens(np.array(tokens, np.int32), words(len(tokens), top, first))


def taken(parts: Parts, *pieces: tuple[str, list[NewTokens]]) -> list[Part]:
    async def run() -> list[Part]:
        return [await parts.take(parts.read(text, False), tokens, False) for text, tokens in pieces]

    return asyncio.run(run())


def lists(*parts: Part) -> dict[str, list[Any]]:
    """The lists of the parts' logprobs, put together."""
    found = [json.loads(part.logprobs) or {name: [] for name in LISTS} for part in parts]
    return {name: [value for one in found for value in one[name]] for name in LISTS}


def decoded(pieces: list[bytes]) -> str:
    return Detokenizer().push(b"".join(pieces))


@given(ids, st.lists(st.integers(0, 3), max_size=4), st.booleans())
def test_places(names: TokenNames, tokens: list[int], cuts: list[int], skip_special: bool) -> None:
    """A token begins where the text of all before it ends, however they are cut into parts."""
    visible = names.table.plain if skip_special else names.table.shown
    data = [visible[place] for place in names.table.places(np.array(tokens, np.int32)).tolist()]
    ends = [0, *np.cumsum(cuts).tolist(), len(tokens)]
    spans = [(first, max(first, min(last, len(tokens)))) for first, last in pairwise(ends)]
    pieces = [("", [new(tokens[first:last], first)] if last > first else []) for first, last in spans]
    found = lists(*taken(Parts(choice(skip_special=skip_special), "completions", names), *pieces))
    assert found["text_offset"] == [len(decoded(data[:count])) for count in range(len(tokens))]
    assert found["token_logprobs"] == [-1.0 - place for place in range(len(tokens))]


@given(st.text(max_size=6), ids)
def test_echo(names: TokenNames, text: str, tokens: list[int]) -> None:
    """The prompt comes first, its first token without a log-probability; then all places are behind it."""
    prompt = names.tokenizer.encode_text(text) or [30]
    text = names.tokenizer.decode(prompt)
    one = choice(prompt, echo=text)
    one.prompt_words = [words(len(prompt) - 1)]
    (part,) = taken(Parts(one, "completions", names), ("said", [new(tokens)]))
    found = lists(part)
    assert text_of(part.deltas) == text + "said"
    assert found["token_logprobs"] == [None, *(-1.0 - place for place in range(len(prompt) - 1))] + [
        -1.0 - place for place in range(len(tokens))
    ]
    pieces = [names.tokenizer.token_bytes[token] for token in prompt]
    assert found["text_offset"][: len(prompt)] == [len(decoded(pieces[:count])) for count in range(len(prompt))]
    assert all(place >= len(text) for place in found["text_offset"][len(prompt) :])


def test_echo_is_in_the_first_part_alone(names: TokenNames) -> None:
    """A stream has the prompt once, with the first text or with an end that has none; its choices have their own."""
    parts = Parts(choice([30, 31], echo="Hi"), "completions", names)
    first, second = taken(parts, ("a", [new([30])]), ("b", [new([31])]))
    assert (first.deltas, second.deltas) == ((Content("Hia"),), (Content("b"),))
    assert len(lists(first)["tokens"]) == 3
    assert lists(second)["text_offset"] == [3]
    assert taken(Parts(choice(logprobs=NO_LOGPROBS, echo="Hi"), "completions", names), ("", [])) == [
        Part((Content("Hi"),))
    ]


def test_prompt_logprobs_that_came_in_pieces_or_not_at_all(names: TokenNames) -> None:
    """Pieces are put together; what did not come, because the prompt was never computed to its end, is null."""
    one = choice([30, 31, 32, 33, 34], echo="x")
    one.prompt_words = [words(2), words(1, first=2)]
    (part,) = taken(Parts(one, "completions", names), ("", []))
    assert lists(part)["token_logprobs"] == [None, -1.0, -2.0, -3.0, None]


def test_place_in_a_prompt_is_a_place_in_what_was_sent(names: TokenNames) -> None:
    """Where normalisation made the ids' text longer than what the client sent, no token begins beyond that."""
    (part,) = taken(Parts(choice([30, 31, 32], echo="a"), "completions", names), ("", []))
    assert lists(part)["text_offset"] == [0, 1, 1]


@BOTH
def test_without_tokens_or_wish(names: TokenNames, route: Route) -> None:
    """A part has null for its log-probabilities if it has no token, or none were asked for."""
    assert taken(Parts(choice(), route, names), ("a", [])) == [Part((Content("a"),), "null")]
    assert taken(Parts(choice(logprobs=NO_LOGPROBS), route, names), ("a", [])) == [Part((Content("a"),), "null")]


@BOTH
def test_lost_log_probabilities(names: TokenNames, route: Route) -> None:
    """Tokens whose log-probabilities were lost are still there, and those beside them have their own."""
    tokens = [new([30]), NewTokens(np.array([31, 32], np.int32), None), new([33], 1)]
    (part,) = taken(Parts(choice(), route, names), ("abcd", tokens))
    found = json.loads(part.logprobs)
    if route == "chat":
        assert [one["logprob"] for one in found["content"]] == [-1, -9999, -9999, -2]
    else:
        assert found["token_logprobs"] == [-1, None, None, -2]


@BOTH
def test_large_part(names: TokenNames, route: Route, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is made in a thread is the same."""
    tokens = [new([30, 31, 32] * 100, top=20)]
    assert tokens[0].words is not None
    assert tokens[0].words.size > parts_module.INLINE_WORDS
    in_a_thread = taken(Parts(choice(), route, names), ("a", tokens))
    monkeypatch.setattr(parts_module, "INLINE_WORDS", 1 << 30)
    assert in_a_thread == taken(Parts(choice(), route, names), ("a", tokens))
