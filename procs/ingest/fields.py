"""The fields of the two requests that generate, as a table: which there are, what they may be, what they mean.

parameters.py checks by it, openapi/ describes it; a new field is one entry. A field that another route has, or that is
documented but not there yet, is accepted with a value that changes nothing and refused by name with any other: never
ignored. (But for `prompt` and `messages`: see `Field.required`.) Null is the same as absent for every field. Names
that are not here are ignored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from ...common.rules import MAX_TOKEN_ID, Flag, Integer, Schema
from ...common.types import MAX_CHOICES, MAX_LOGPROBS, RULES, default_of
from .messages import MESSAGES
from .structure import RESPONSE_FORMAT, STRUCTURED_OUTPUTS
from .tools.request import TOOL_CHOICE, TOOLS

Route = Literal["completions", "chat"]

BOTH: tuple[Route, ...] = ("completions", "chat")
PATHS: dict[Route, str] = {"completions": "/v1/completions", "chat": "/v1/chat/completions"}

DEFAULT_COMPLETION_TOKENS = 16
GUIDED = ("json", "regex", "choice", "grammar")

TOKENS: Schema = {"type": "array", "minItems": 1, "items": Integer(0, MAX_TOKEN_ID).schema()}


@dataclass(frozen=True, slots=True)
class Field:
    """One field of the `routes` that have it. `schema` is what it may be; None: it is not supported yet. `neutral` are
    values that change nothing, where a request can say nothing with it.
    """

    name: str
    schema: Schema | None
    meaning: str
    default: Any = None
    routes: tuple[Route, ...] = BOTH
    neutral: tuple[Any, ...] = ()
    required: bool = False
    """It must be given. Another route ignores it: some clients send both routes the same."""

    def usable(self, route: Route) -> bool:
        """Whether a request to the route can say something with it."""
        return self.schema is not None and route in self.routes


def _sampling(name: str, meaning: str) -> Field:
    """A field that SamplingParams knows by the same name, with its bounds and its default."""
    schema, default = RULES[name].schema(), default_of(name)
    if isinstance(default, tuple):
        default = {} if schema.get("type") == "object" else []
    return Field(name, schema, meaning, default)


SAMPLING = (
    _sampling("n", "Choices for each prompt."),
    _sampling("min_tokens", "Neither EOS, nor a stop id, nor a stop string ends the text before so many tokens."),
    _sampling("temperature", "0, and all below 1e-5, is greedy."),
    _sampling("top_k", "Sample from so many best tokens. 0 and -1: off."),
    _sampling("top_p", "Sample from the best tokens that have this probability together."),
    _sampling("min_p", "Sample from tokens that are at least so likely, beside the best one."),
    _sampling("seed", "The same seed, prompt and parameters have the same random numbers. Without: fresh ones."),
    _sampling("repetition_penalty", "Above 1: tokens of the prompt and the output become less likely."),
    _sampling("presence_penalty", "Taken from the logits of tokens that the output has."),
    _sampling("frequency_penalty", "Taken from the logits of tokens as often as the output has them."),
    _sampling("stop", "Strings that end the text, and are left out of it."),
    _sampling("stop_token_ids", "Tokens of the vocabulary that end the text."),
    _sampling("logit_bias", "Added to the logits of tokens of the vocabulary."),
    _sampling("ignore_eos", "EOS does not end the text."),
    _sampling("include_stop_str_in_output", "The text has the stop string that ended it."),
    _sampling("skip_special_tokens", "Control tokens are left out of the text."),
    _sampling("priority", "Lower goes first."),
    _sampling("timeout", "Seconds after which the request ends. Without: the server's own limit."),
    _sampling("cache_salt", "Only requests with the same salt share prefixes in the cache."),
)
"""Fields that go to SamplingParams as they are."""

NOT_YET = (
    Field("suffix", None, "Text after the completion.", routes=("completions",), neutral=("",)),
    Field("functions", None, "The older name of tools.", routes=("chat",), neutral=([],)),
    Field("function_call", None, "The older name of tool_choice.", routes=("chat",), neutral=("none",)),
    Field("modalities", None, "What the answer is made of.", routes=("chat",), neutral=(["text"],)),
    Field("audio", None, "How an answer sounds.", routes=("chat",)),
    *[Field(f"guided_{kind}", None, "vLLM's older name of structured_outputs.") for kind in GUIDED],
    Field("use_beam_search", None, "As in vLLM.", neutral=(False,)),
    Field("prompt_logprobs", None, "As in vLLM; echo with logprobs has them, too."),
    Field("allowed_token_ids", None, "As in vLLM."),
    Field("bad_words", None, "As in vLLM.", neutral=([],)),
    Field("truncate_prompt_tokens", None, "As in vLLM."),
)
"""Fields that other servers have and that would change the answer, so they are not ignored."""

TOOL_FIELDS = (
    Field("tools", TOOLS, "Functions that the model may call.", routes=("chat",), neutral=([],)),
    Field(
        "tool_choice",
        TOOL_CHOICE,
        "Whether and what it must call. Without: auto where there are tools. All but none need some.",
        routes=("chat",),
        neutral=("none",),
    ),
    Field(
        "parallel_tool_calls",
        Flag().schema(),
        "There may be several calls.",
        routes=("chat",),
        neutral=(True,),
    ),
)
"""Fields about calls of functions."""

FRAMING = (
    Field(
        "add_special_tokens",
        Flag().schema(),
        "The tokenizer's BOS token, if it has one, goes first. Without: in completions; in chat the template decides.",
    ),
    Field(
        "add_generation_prompt",
        Flag().schema(),
        "The template begins the assistant's next message. Without: yes, unless the last one is continued.",
        routes=("chat",),
        neutral=(True,),
    ),
    Field(
        "continue_final_message",
        Flag().schema(),
        "The last message is left open, and the text goes on with it.",
        False,
        routes=("chat",),
        neutral=(False,),
    ),
    Field(
        "chat_template",
        {"type": "string"},
        "In place of the model's. Refused unless the server trusts requests with that.",
        routes=("chat",),
    ),
    Field(
        "chat_template_kwargs",
        {"type": "object"},
        "Variables for the template. Refused unless the server trusts requests with that.",
        routes=("chat",),
    ),
)
"""What stands around a prompt's text (framing.py)."""

FIELDS = (
    Field("model", {"type": "string"}, "One of the names in /v1/models. Without: the first of them."),
    Field(
        "prompt",
        {
            "anyOf": [
                {"type": "string"},
                TOKENS,
                {"type": "array", "minItems": 1, "items": {"type": "string"}},
                {"type": "array", "minItems": 1, "items": TOKENS},
            ]
        },
        "A text, token ids of the vocabulary, or several of one kind. Each must have a token, and leave room for one.",
        routes=("completions",),
        required=True,
    ),
    Field("messages", MESSAGES, "The conversation.", routes=("chat",), required=True),
    Field(
        "max_tokens",
        RULES["max_tokens"].schema(),
        f"At most so many tokens. Without: {DEFAULT_COMPLETION_TOKENS} in completions, what the context has room "
        "for in chat. 0 only where a prompt is echoed.",
    ),
    Field(
        "max_completion_tokens",
        RULES["max_tokens"].schema(),
        "The newer name of max_tokens. If both are given they must be equal.",
    ),
    *FRAMING,
    *SAMPLING,
    Field("best_of", Integer(1, MAX_CHOICES).schema(), "Must be the same as n."),
    Field("echo", Flag().schema(), "The text begins with the prompt.", False, ("completions",), (False,)),
    Field("stream", Flag().schema(), "Answer with events as the text comes.", False),
    Field(
        "stream_options",
        {"type": "object", "properties": {"include_usage": {"type": ["boolean", "null"]}}},
        "Only with stream. include_usage: one more event, which has the usage.",
    ),
    Field(
        "top_logprobs",
        Integer(0, MAX_LOGPROBS).schema(),
        "So many alternatives for each token. Needs logprobs.",
        routes=("chat",),
    ),
    Field("response_format", RESPONSE_FORMAT, "What the text will obey."),
    Field("structured_outputs", STRUCTURED_OUTPUTS, "What the text will obey, as in vLLM."),
    *TOOL_FIELDS,
    *NOT_YET,
)
"""The fields that mean the same in all routes that have them."""

LOGPROBS: dict[Route, Field] = {
    "completions": Field(
        "logprobs", RULES["logprobs"].schema(), "Log-probabilities of all tokens and of so many alternatives."
    ),
    "chat": Field("logprobs", Flag().schema(), "Log-probabilities of all tokens.", False),
}
"""The one that does not."""
