"""What the offline API gives back: completions, made of the JSON of either generating route."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Messages = Sequence[dict[str, Any]]
Prompt = str | Sequence[int] | Messages


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A generated token, its log-probability, and those of the best tokens at its place, by their texts.

    Values are of the model's distribution, before temperature. `best` has the token itself in any case.
    """

    token: str
    logprob: float
    best: dict[str, float]


@dataclass(frozen=True, slots=True)
class Choice:
    """One of the texts generated for a prompt.

    `finish_reason` is "stop", "length" or another of the API's; `stop_reason` is the stop string or the
    stop id that ended it, None for the model's own end. `logprobs` are None unless they were asked for.
    """

    text: str
    finish_reason: str
    stop_reason: str | int | None
    logprobs: tuple[TokenLogprob, ...] | None = None


@dataclass(frozen=True, slots=True)
class Completion:
    """A prompt and what was generated for it: one choice, or `n` of them.

    `completion_tokens` counts the tokens of all choices; `cached_tokens` of the prompt were found in the
    prefix cache.
    """

    prompt: Prompt
    choices: tuple[Choice, ...]
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int

    @property
    def text(self) -> str:
        """The first choice's text."""
        return self.choices[0].text

    @property
    def finish_reason(self) -> str:
        return self.choices[0].finish_reason

    @property
    def stop_reason(self) -> str | int | None:
        return self.choices[0].stop_reason

    @property
    def logprobs(self) -> tuple[TokenLogprob, ...] | None:
        return self.choices[0].logprobs


def read_completion(prompt: Prompt, answer: dict[str, Any]) -> Completion:
    """The completion in an answer."""
    usage = answer["usage"]
    return Completion(
        prompt,
        tuple(_choice(choice) for choice in sorted(answer["choices"], key=lambda choice: choice["index"])),
        usage["prompt_tokens"],
        usage["completion_tokens"],
        usage["prompt_tokens_details"]["cached_tokens"],
    )


def _choice(choice: dict[str, Any]) -> Choice:
    text = choice["message"]["content"] if "message" in choice else choice["text"]
    return Choice(text or "", choice["finish_reason"], choice.get("stop_reason"), _logprobs(choice.get("logprobs")))


def _logprobs(found: dict[str, Any] | None) -> tuple[TokenLogprob, ...] | None:
    if found is None:
        return None
    if "content" not in found:
        return tuple(map(TokenLogprob, found["tokens"], found["token_logprobs"], found["top_logprobs"]))
    return tuple(
        TokenLogprob(
            entry["token"],
            entry["logprob"],
            {other["token"]: other["logprob"] for other in [entry, *entry["top_logprobs"]]},
        )
        for entry in found["content"]
    )
