"""Between the offline API and the HTTP API: what is asked, and what is given back for a prompt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..common.types import SamplingParams

Messages = Sequence[dict[str, Any]]
Prompt = str | Sequence[int] | Messages


@dataclass(frozen=True, slots=True)
class Choice:
    """One of the texts generated for a prompt.

    `finish_reason` is "stop", "length" or another of the API's; `stop_reason` is the stop string or the
    stop id that ended it, None for the model's own end.
    """

    text: str
    finish_reason: str
    stop_reason: str | int | None


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


def request_fields(params: SamplingParams) -> dict[str, Any]:
    """The fields of a request: they have the same names in both APIs."""
    return {name: value for name, value in asdict(params).items() if value is not None}


def from_answer(prompt: Prompt, answer: dict[str, Any]) -> Completion:
    """A Completion from the JSON of either generating route."""
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
    return Choice(text or "", choice["finish_reason"], choice.get("stop_reason"))
