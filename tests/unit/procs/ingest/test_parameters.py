"""Fields of a request: read, defaulted, or refused by name; never ignored when they are documented."""

from typing import Any

import pytest

from fourstroke.common.errors import InvalidRequest
from fourstroke.procs.ingest.body import Body, parse
from fourstroke.procs.ingest.fields import FIELDS, NOT_YET, Route
from fourstroke.procs.ingest.parameters import Parameters, read_parameters

VOCAB = 100
ROUTES: tuple[Route, ...] = ("completions", "chat")
BOTH = pytest.mark.parametrize("route", ROUTES)


def read(route: Route = "chat", **fields: Any) -> Parameters:
    return read_parameters(Body(fields), route, VOCAB)


def refused(param: str, route: Route = "chat", **fields: Any) -> None:
    with pytest.raises(InvalidRequest) as raised:
        read(route, **fields)
    assert raised.value.param == param
    assert param in str(raised.value)


def test_defaults() -> None:
    """A completion has 16 tokens, a chat answer as many as fit; nothing is streamed; sampling is the API's."""
    assert read("completions").sampling.max_tokens == 16
    assert read("chat").sampling.max_tokens is None
    found = read()
    assert (found.stream, found.include_usage) == (False, False)
    assert (found.sampling.temperature, found.sampling.top_p, found.sampling.n) == (1.0, 1.0, 1)


NUMBERS = ["temperature", "top_p", "min_p", "top_k", "max_tokens", "max_completion_tokens", "n", "seed", "min_tokens"]
NUMBERS += ["priority", "timeout", "presence_penalty", "frequency_penalty", "repetition_penalty"]


@BOTH
@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e999", '"1"', "true", "[1]", "{}"])
def test_what_is_no_number(route: Route, name: str, value: str) -> None:
    """Where a number belongs, anything else is refused by the name it was given by."""
    with pytest.raises(InvalidRequest) as raised:
        read_parameters(parse(f'{{"{name}": {value}}}'.encode()), route, VOCAB)
    assert raised.value.param == name


@BOTH
@pytest.mark.parametrize("name", ["stream", "ignore_eos", "include_stop_str_in_output", "skip_special_tokens"])
@pytest.mark.parametrize("value", ["yes", 1, 0, [], {}])
def test_flags(route: Route, name: str, value: Any) -> None:
    """A flag is true or false."""
    refused(name, route, **{name: value})


@BOTH
def test_not_supported_yet(route: Route) -> None:
    """A documented parameter that is not supported is refused by name."""
    for field in NOT_YET:
        refused(field.name, route, **{field.name: {"x": 1}})


@BOTH
def test_fields_of_the_other_route(route: Route) -> None:
    """A field that only the other route has is refused by name, unless it changes nothing; its prompt is ignored."""
    for field in FIELDS:
        if field.required:
            assert read(route, **{field.name: "x"}) == read(route)
        elif route not in field.routes:
            refused(field.name, route, **{field.name: "x"})
        assert read(route, **{field.name: None}) == read(route)
        for value in field.neutral:
            assert read(route, **{field.name: value}) == read(route)


@BOTH
def test_penalties(route: Route) -> None:
    """Those of the OpenAI API reach from -2 to 2; that of repetition is a factor above 0."""
    for value in [-2, 0.5, 2]:
        found = read(route, presence_penalty=value, frequency_penalty=-value, repetition_penalty=value + 2.5).sampling
        assert (found.presence_penalty, found.frequency_penalty) == (value, -value)
        assert found.repetition_penalty == value + 2.5
    for wrong in [-2.01, 2.01]:
        refused("presence_penalty", route, presence_penalty=wrong)
        refused("frequency_penalty", route, frequency_penalty=wrong)
    for wrong in [0, -1, 1e7]:
        refused("repetition_penalty", route, repetition_penalty=wrong)


@BOTH
def test_cache_salt(route: Route) -> None:
    """A salt is a string that is not empty nor endless."""
    for salt in [None, "x", "é" * 1024]:
        assert read(route, cache_salt=salt).sampling.cache_salt == salt
    for wrong in ["", "x" * 1025, 5, 0, True, False, ["a"], [], {}]:
        refused("cache_salt", route, cache_salt=wrong)


@BOTH
def test_priority_and_timeout(route: Route) -> None:
    """A priority is an int32, below 0 too; a time-out is a number of seconds above 0."""
    for priority in [0, 7, -(2**31), 2**31 - 1]:
        assert read(route, priority=priority).sampling.priority == priority
    for seconds in [5, 0.25, 1 << 30]:
        assert read(route, timeout=seconds).sampling.timeout == seconds
    for wrong in [2**31, -(2**31) - 1, 1.0]:
        refused("priority", route, priority=wrong)
    for wrong in [0, 0.0, -1, (1 << 30) + 1]:
        refused("timeout", route, timeout=wrong)


@BOTH
def test_neutral_values(route: Route) -> None:
    """Null is the same as absent for every field, and so is the value that changes nothing."""
    names = [
        *[field.name for field in FIELDS],
        *NUMBERS,
        "response_format",
        "structured_outputs",
        "logprobs",
        "top_logprobs",
        "echo",
        "stream",
        "stream_options",
        "stop",
        "stop_token_ids",
        "best_of",
    ]
    assert read(route, **dict.fromkeys(names)) == read(route)
    neutral = {"presence_penalty": 0, "frequency_penalty": 0.0, "repetition_penalty": 1, "logit_bias": {}, "best_of": 1}
    assert read(route, **neutral, response_format={"type": "text"}, priority=0, nobody_knows_this=[1]) == read(route)
    assert read("chat", logprobs=False, tools=[], tool_choice="none", parallel_tool_calls=True) == read("chat")
    assert read("completions", echo=False, suffix="") == read("completions")


def test_logit_bias() -> None:
    """Biases are by token id, which JSON has as a string; ids and values have their ranges."""
    assert read(logit_bias={"5": 1, "99": -100}).sampling.logit_bias == ((5, 1.0), (99, -100.0))
    for wrong in [{"100": 1}, {"-1": 1}, {"x": 1}, {"": 1}, {"1.5": 1}, {"5": 101}, {"5": None}, {"5": True}, [5], "5"]:
        refused("logit_bias", logit_bias=wrong)
    refused("logit_bias", logit_bias={str(token): 1 for token in range(1025)})


def test_logprobs_of_completions() -> None:
    """A number of alternatives, 0 too, asks for log-probabilities."""
    for count in [None, 0, 5, 20]:
        assert read("completions", logprobs=count).sampling.logprobs == count
    for wrong in [-1, 21, True, False, "1", 1.0, [], float("nan")]:
        refused("logprobs", "completions", logprobs=wrong)


def test_logprobs_of_chat() -> None:
    """A flag asks for log-probabilities, a number beside it for alternatives; the number alone is refused."""
    assert read(logprobs=True).sampling.logprobs == 0
    for count in [0, 20]:
        assert read(logprobs=True, top_logprobs=count).sampling.logprobs == count
    for wrong in ["x", 0, 1, [], {}]:
        refused("logprobs", logprobs=wrong)
    for wrong in [-1, 21, True, "1", 1.0, []]:
        refused("top_logprobs", logprobs=True, top_logprobs=wrong)
    for count in [0, 2]:
        refused("top_logprobs", top_logprobs=count)
        refused("top_logprobs", logprobs=False, top_logprobs=count)


def test_echo() -> None:
    """The prompt of a completion is echoed if that is asked for; then it may be all that is."""
    assert [read("completions", echo=echo).echo for echo in (None, False, True)] == [False, False, True]
    assert read("completions", echo=True, max_tokens=0, logprobs=1).sampling.max_tokens == 0
    for wrong in [0, 1, "true", []]:
        refused("echo", "completions", echo=wrong)
    for fields in [{}, {"echo": False}, {"logprobs": 1}]:
        refused("max_tokens", "completions", max_tokens=0, **fields)
        refused("max_completion_tokens", "completions", max_completion_tokens=0, **fields)
    refused("max_tokens", "completions", max_tokens=-1, echo=True)
    refused("max_tokens", "chat", max_tokens=0)
    assert not read("chat", echo=False).echo
    refused("echo", "chat", echo=True)


def test_best_of() -> None:
    """best_of is n or refused."""
    assert read("completions", n=2, best_of=2).sampling.n == 2
    for n, best_of in [(1, 3), (2, 1), (1, True), (1, "1")]:
        refused("best_of", "completions", n=n, best_of=best_of)


def test_two_names_of_max_tokens() -> None:
    """Either name sets the limit; both may be given when they are equal."""
    assert read(max_tokens=3).sampling.max_tokens == 3
    assert read(max_completion_tokens=3).sampling.max_tokens == 3
    assert read(max_completion_tokens=3, max_tokens=3).sampling.max_tokens == 3
    refused("max_completion_tokens", max_completion_tokens=3, max_tokens=4)
    refused("max_completion_tokens", max_completion_tokens=0)
    refused("max_tokens", max_tokens=0)


@pytest.mark.parametrize("value", [[VOCAB], [-1], [1.5], [True], ["7"], [None], 5, {}, "5"])
def test_stop_ids(value: Any) -> None:
    """Stop ids are ints of the vocabulary."""
    assert read(stop_token_ids=[0, VOCAB - 1]).sampling.stop_token_ids == (0, VOCAB - 1)
    refused("stop_token_ids", stop_token_ids=value)


@pytest.mark.parametrize("value", ["", [""], ["a", ""], ["z"] * 17, "z" * 1025, [1], [None], {}, 5, True])
def test_stop_strings(value: Any) -> None:
    """Stop strings are a few short strings, none of them empty."""
    assert read(stop="a").sampling.stop == ("a",)
    assert read(stop=["a", "b"]).sampling.stop == ("a", "b")
    refused("stop", stop=value)


def test_stream_options() -> None:
    """The usage is sent in a stream when it is asked for there, and only there."""
    assert read(stream=True, stream_options={"include_usage": True}).include_usage
    assert not read(stream=True, stream_options={"include_usage": None}).include_usage
    assert not read(stream=True, stream_options={"other": 5}).include_usage
    for options in [5, [], "x", {"include_usage": 1}]:
        refused("stream_options", stream=True, stream_options=options)
    refused("stream_options", stream_options={"include_usage": True})
