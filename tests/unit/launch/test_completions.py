"""Completions of the offline API say what the JSON of either route says."""

from typing import Any

from fourstroke.common.types import SamplingParams
from fourstroke.launch.client import request_fields
from fourstroke.launch.completions import Choice, TokenLogprob, read_completion

USAGE = {"prompt_tokens": 5, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 4}}
ENTRIES = (TokenLogprob("a", -1.0, {"a": -1.0, "b": -0.5}), TokenLogprob("b", -0.5, {"b": -0.5, "c": -2.0}))

IN_COMPLETIONS: dict[str, Any] = {
    "tokens": ["a", "b"],
    "token_logprobs": [-1.0, -0.5],
    "top_logprobs": [{"a": -1.0, "b": -0.5}, {"b": -0.5, "c": -2.0}],
    "text_offset": [0, 1],
}
IN_CHAT: dict[str, Any] = {
    "content": [
        {"token": "a", "logprob": -1.0, "bytes": [97], "top_logprobs": [{"token": "b", "logprob": -0.5}]},
        {
            "token": "b",
            "logprob": -0.5,
            "bytes": [98],
            "top_logprobs": [{"token": "b", "logprob": -0.5}, {"token": "c", "logprob": -2.0}],
        },
    ]
}


def choice(index: int, logprobs: Any, **content: Any) -> dict[str, Any]:
    return {"index": index, **content, "logprobs": logprobs, "finish_reason": "stop", "stop_reason": "x"}


def test_both_routes_give_the_same() -> None:
    """Text, reasons, counts and log-probabilities are the same from a completion and from a chat answer."""
    completion = read_completion("p", {"choices": [choice(0, IN_COMPLETIONS, text="ab")], "usage": USAGE})
    chat = read_completion("p", {"choices": [choice(0, IN_CHAT, message={"content": "ab"})], "usage": USAGE})
    assert completion == chat
    assert completion.choices == (Choice("ab", "stop", "x", ENTRIES),)
    assert (completion.prompt_tokens, completion.completion_tokens, completion.cached_tokens) == (5, 3, 4)


def test_choices_are_in_order() -> None:
    """Choices come by their index, and have no log-probabilities where the answer has none."""
    answer = {"choices": [choice(1, None, text="b"), choice(0, None, text="a")], "usage": USAGE}
    found = read_completion("p", answer)
    assert [one.text for one in found.choices] == ["a", "b"]
    assert (found.text, found.logprobs) == ("a", None)


def test_fields_that_ask_for_log_probabilities() -> None:
    """Completions take the number, chat a flag and the number; without a wish there is neither."""
    params = SamplingParams(logprobs=3)
    assert request_fields(params)["logprobs"] == 3
    assert "top_logprobs" not in request_fields(params)
    in_chat = request_fields(params, chat=True)
    assert (in_chat["logprobs"], in_chat["top_logprobs"]) == (True, 3)
    for chat in (False, True):
        assert not {"logprobs", "top_logprobs"} & request_fields(SamplingParams(), chat).keys()
