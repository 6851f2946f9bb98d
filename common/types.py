"""Small value types that several processes share: sampling parameters, reasons to finish."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .errors import InvalidRequest
from .rules import MAX_TOKEN_ID, Biases, Flag, Integer, Number, Rule, Text, Texts, TokenIds

GREEDY_BELOW = 1e-5
"""Temperatures below this are greedy: dividing by them would overflow float32."""

MAX_CHOICES = 128
MAX_STOP_STRINGS = 16
MAX_STOP_CHARS = 1024
MAX_STOP_IDS = 1024
MAX_BIASES = 1024
MAX_BIAS = 100
MAX_TEMPERATURE = 1e6
MAX_PENALTY = 2
MIN_REPETITION_PENALTY = 1e-6
MAX_REPETITION_PENALTY = 1e6
MAX_LOGPROBS = 20
MAX_TIMEOUT_S = 1 << 30
MAX_SALT_CHARS = 1024

RULES: dict[str, Rule] = {
    "n": Integer(1, MAX_CHOICES),
    "max_tokens": Integer(0, MAX_TOKEN_ID),
    "logprobs": Integer(0, MAX_LOGPROBS),
    "min_tokens": Integer(0, MAX_TOKEN_ID),
    "temperature": Number(0, MAX_TEMPERATURE),
    "top_k": Integer(-1, MAX_TOKEN_ID),
    "top_p": Number(0, 1, above=True),
    "min_p": Number(0, 1),
    "presence_penalty": Number(-MAX_PENALTY, MAX_PENALTY),
    "frequency_penalty": Number(-MAX_PENALTY, MAX_PENALTY),
    "repetition_penalty": Number(MIN_REPETITION_PENALTY, MAX_REPETITION_PENALTY),
    "seed": Integer(-(2**63), 2**63 - 1),
    "stop": Texts(MAX_STOP_STRINGS, MAX_STOP_CHARS),
    "stop_token_ids": TokenIds(MAX_STOP_IDS),
    "logit_bias": Biases(MAX_BIASES, MAX_BIAS),
    "ignore_eos": Flag(),
    "include_stop_str_in_output": Flag(),
    "skip_special_tokens": Flag(),
    "priority": Integer(-(2**31), 2**31 - 1),
    "timeout": Number(0, MAX_TIMEOUT_S, above=True),
    # As in vLLM, an empty salt is refused: it would be the same as none, which is hardly what was meant.
    "cache_salt": Text(MAX_SALT_CHARS),
}
"""What each sampling parameter may be. A parameter whose default is None may be None, too."""


SUPERVISOR = "supervisor"
"""The launcher's own name on wires and on the board."""

EXIT_FAILED = 1
EXIT_REFUSED = 3
"""Exit status of a process that ended on purpose, and has reported why."""


def role_of(name: str) -> str:
    """The role in the name of a process: scheduler0 is a scheduler."""
    return name.rstrip("0123456789")


def number_of(name: str) -> int:
    """The number in the name of a process."""
    return int(name.removeprefix(role_of(name)))


class Finish(enum.IntEnum):
    """Why a request ended. NONE means that it has not."""

    NONE = 0
    STOP = 1
    LENGTH = 2
    ABORT = 3
    TIMEOUT = 4
    ERROR = 5
    REJECTED = 6


class TransferAction(enum.IntEnum):
    """What the executor is to do with the KV of a request."""

    RECEIVE = 0
    SEND = 1
    CANCEL = 2


class TransferOutcome(enum.IntEnum):
    """What became of a transfer. After FAILED and CANCELLED nothing touches its blocks any more."""

    RECEIVED = 0
    SENT = 1
    FAILED = 2
    CANCELLED = 3


class KvKind(enum.IntEnum):
    """What has happened to blocks of the KV cache, as others are told of it."""

    STORED = 0
    REMOVED = 1
    CLEARED = 2


class State(enum.IntEnum):
    """What a process is doing, as its row on the board tells."""

    STARTING = 0
    READY = 1
    DRAINING = 2
    STOPPED = 3
    FAILED = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How the tokens of a request are chosen, and when it ends.

    `temperature` below 1e-5 is greedy. `top_k` of 0 or -1, `top_p` of 1 and `min_p` of 0 are off.
    `max_tokens` of None means as many as the context has room for; 0, none at all, is for a prompt that is echoed.
    With `logprobs` each token comes with its log-probability and those of so many best tokens.
    With the same `seed`, prompt and parameters the random numbers are the same whatever else the server does; None
    draws a new seed.
    `repetition_penalty` makes tokens of the prompt and the output less likely (above 1); `presence_penalty` and
    `frequency_penalty` those of the output, once and as often as they are there. They come before `logit_bias`, which
    is added to the logits of some token ids: a mapping, kept as pairs.
    `structured_outputs` has one of `json`, `json_object`, `regex`, `choice` and `grammar`, which the text will obey.
    `stop` strings end generation and are left out of the text unless `include_stop_str_in_output`.
    Requests with a lower `priority` go first. After `timeout` seconds a request ends with what there is; None is
    the server's own limit. Requests share a prefix cache only with those of the same `cache_salt`.

    Raises InvalidRequest, which names the parameter.
    """

    n: int = 1
    max_tokens: int | None = None
    logprobs: int | None = None
    min_tokens: int = 0
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] | tuple[tuple[int, float], ...] = ()
    structured_outputs: Mapping[str, object] | None = None
    ignore_eos: bool = False
    include_stop_str_in_output: bool = False
    skip_special_tokens: bool = True
    priority: int = 0
    timeout: float | None = None
    cache_salt: str | None = None

    def __post_init__(self) -> None:
        for name, rule, default in _CHECKED:
            value = getattr(self, name)
            if value is not default:  # mostly it is, and that is a third of the time
                object.__setattr__(self, name, rule.check(name, value))
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise InvalidRequest(
                f"min_tokens ({self.min_tokens}) must not be above max_tokens ({self.max_tokens})", "min_tokens"
            )

    @property
    def greedy(self) -> bool:
        return self.temperature < GREEDY_BELOW


_DEFAULTS = {field.name: field.default for field in dataclasses.fields(SamplingParams)}
_CHECKED = tuple((name, rule, _DEFAULTS[name]) for name, rule in RULES.items())


def default_of(name: str) -> Any:
    """What a sampling parameter is where it is not given. It passes its rule, or is None."""
    return _DEFAULTS[name]
