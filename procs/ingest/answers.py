"""The JSON of answers: choices, usage, finish reasons, as the OpenAI API has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...common.types import Finish
from ...ipc.messages import Ending
from .errors import Refusal
from .fields import Route
from .live import Choice, LiveRequest
from .message import message, text_of
from .parts import Part, Parts
from .values import to_json

OBJECTS: dict[Route, str] = {"completions": "text_completion", "chat": "chat.completion"}

REASONS = {Finish.STOP: "stop", Finish.LENGTH: "length", Finish.ABORT: "abort", Finish.TIMEOUT: "timeout"}
CALLED = "tool_calls"
"""The reason of an answer that ended by itself, with calls."""


@dataclass(frozen=True, slots=True)
class Head:
    """What all parts of an answer share. `created` is in seconds since 1970."""

    id: str
    route: Route
    model: str
    created: int

    def members(self, streamed: bool = False) -> dict[str, Any]:
        name = OBJECTS[self.route] + ".chunk" * (streamed and self.route == "chat")
        return {"id": self.id, "object": name, "created": self.created, "model": self.model}


def finish_reason(ending: Ending, called: bool) -> str:
    """Why a choice ended; `called`: it has calls, and they are complete."""
    return CALLED if called and ending.finish is Finish.STOP else REASONS[ending.finish]


def stop_reason(ending: Ending) -> str | int | None:
    """The stop string or stop id that ended a choice; None for EOS and all other reasons."""
    if ending.stop_string is not None:
        return ending.stop_string
    return ending.stop_token if ending.stop_token >= 0 else None


def failure(choice: Choice, ending: Ending) -> Refusal | None:
    """The error that a choice ended with, if it was one. A time-out is one only where its request has no text yet."""
    if ending.finish is Finish.ERROR:
        return Refusal(500, ending.detail or "the request failed")
    if ending.finish is Finish.REJECTED:
        return Refusal(400, ending.detail or "the request can never run on this server")
    if ending.finish is Finish.TIMEOUT and not any(one.read_chars for one in choice.request.choices):
        return Refusal(504, ending.detail or "the request took too long", code="timeout")
    return None


def first_choices(request: LiveRequest) -> list[Choice]:
    """The first choice of each prompt: what belongs to a prompt counts once, whatever n is."""
    return list({choice.prompt_index: choice for choice in reversed(request.choices)}.values())


def usage(request: LiveRequest, parts: Sequence[Parts]) -> dict[str, Any]:
    """The usage of a request whose choices have all ended: a prompt counts once, whatever n is.

    `parts` are those of the choices, which know what was reasoning.
    """
    completion_tokens = 0
    for choice in request.choices:
        assert choice.ending is not None
        completion_tokens += choice.ending.tokens
    firsts = first_choices(request)
    prompt_tokens = sum(len(choice.prompt) for choice in firsts)
    cached_tokens = sum(choice.cached_tokens or 0 for choice in firsts)
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": cached_tokens},
        **_details([one.reasoning_tokens() for one in parts]),
    }


def _details(reasoning_tokens: Sequence[int | None]) -> dict[str, Any]:
    known = [count for count in reasoning_tokens if count is not None]
    return {"completion_tokens_details": {"reasoning_tokens": sum(known)}} if known else {}


def whole_answer(head: Head, request: LiveRequest, parts: Sequence[Part], used: Mapping[str, Any]) -> str:
    """The JSON of the answer in one piece; each of `parts` is all of a choice, in order, and `used` is the usage."""
    choices = [_whole_choice(head.route, choice, part) for choice, part in zip(request.choices, parts, strict=True)]
    return f'{to_json(head.members())[:-1]},"choices":[{",".join(choices)}],"usage":{to_json(used)}}}'


def _whole_choice(route: Route, choice: Choice, part: Part) -> str:
    assert choice.ending is not None
    content = {"message": message(part.deltas)} if route == "chat" else {"text": text_of(part.deltas)}
    before = {"index": choice.index, **content}
    after = {"finish_reason": finish_reason(choice.ending, part.called), "stop_reason": stop_reason(choice.ending)}
    return f'{to_json(before)[:-1]},"logprobs":{part.logprobs},{to_json(after)[1:]}'
