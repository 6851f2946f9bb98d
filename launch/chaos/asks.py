"""The requests of which the load is made: distinct, each with one right answer, with all that a restart could upset."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_COMPLETIONS, _CHAT = "/v1/completions", "/v1/chat/completions"
_STORY = "The old man rowed out to the island each morning, and each morning the gulls were there before him. "
_SEEDED = {"temperature": 1.0, "top_p": 0.95}
_GREEDY = {"temperature": 0.0}
_SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "maximum": 99}},
    "required": ["name", "age"],
    "additionalProperties": False,
}

_TO_COMPLETE: dict[str, dict[str, Any]] = {
    "greedy": {"prompt": "Once upon a time", "max_tokens": 48, "ignore_eos": True, **_GREEDY},
    "seeded": {"prompt": "Once upon a time", "max_tokens": 48, "ignore_eos": True, "seed": 7, **_SEEDED},
    "ids": {"prompt": list(range(1000, 1040)), "max_tokens": 32, "ignore_eos": True, **_GREEDY},
    "long prompt": {"prompt": _STORY * 24, "max_tokens": 24, "ignore_eos": True, **_GREEDY},
    "stop string": {"prompt": "One, two, three,", "max_tokens": 64, "stop": ["ten", "\n\n"], "seed": 3, **_SEEDED},
    "stop string kept": {
        "prompt": "Days: Monday,",
        "max_tokens": 64,
        "stop": [" and", "ay, F"],
        "include_stop_str_in_output": True,
        **_GREEDY,
    },
    "choices": {"prompt": "My favourite", "n": 3, "max_tokens": 32, "ignore_eos": True, "seed": 11, **_SEEDED},
    "log-probabilities": {"prompt": "Water boils at", "max_tokens": 32, "ignore_eos": True, "logprobs": 2, **_GREEDY},
    "echo": {"prompt": _STORY, "max_tokens": 16, "ignore_eos": True, "logprobs": 1, "echo": True, **_GREEDY},
    "penalties": {
        "prompt": "la la la la",
        "max_tokens": 40,
        "min_tokens": 20,
        "presence_penalty": 0.5,
        "frequency_penalty": 0.3,
        "repetition_penalty": 1.2,
        "seed": 5,
        **_SEEDED,
    },
}
_TO_ANSWER: dict[str, dict[str, Any]] = {
    "chat": {"content": "Name three rivers.", "max_tokens": 40, **_GREEDY},
    "seeded chat": {"content": "Tell me a joke.", "max_tokens": 40, "seed": 21, "n": 2, **_SEEDED},
    "chat with log-probabilities": {
        "content": "Why is the sky blue?",
        "max_tokens": 24,
        "logprobs": True,
        "top_logprobs": 2,
        **_GREEDY,
    },
    "schema": {
        "content": "A cat, as JSON.",
        "max_tokens": 48,
        "seed": 9,
        "response_format": {"type": "json_schema", "json_schema": {"name": "cat", "schema": _SCHEMA}},
        **_SEEDED,
    },
}


@dataclass(frozen=True, slots=True)
class Ask:
    """A request: `body` goes to `path`; its answer comes as a stream or whole."""

    name: str
    path: str
    body: Mapping[str, Any]
    streamed: bool

    @property
    def title(self) -> str:
        return f"{self.name}, {'streamed' if self.streamed else 'whole'}"


def all_asks(model: str) -> list[Ask]:
    """Each of the requests, streamed and whole, for the model of this name."""
    return [
        Ask(
            name,
            path,
            {"model": model, **body, **({"stream_options": {"include_usage": True}} if streamed else {})},
            streamed,
        )
        for name, (path, body) in _bodies().items()
        for streamed in (True, False)
    ]


def _bodies() -> dict[str, tuple[str, dict[str, Any]]]:
    completions = {name: (_COMPLETIONS, body) for name, body in _TO_COMPLETE.items()}
    chats = {}
    for name, fields in _TO_ANSWER.items():
        body = dict(fields)
        body["messages"] = [{"role": "user", "content": body.pop("content")}]
        chats[name] = (_CHAT, body)
    return completions | chats
