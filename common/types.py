"""Small value types that several processes share: sampling parameters, reasons to finish."""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from .errors import InvalidRequest

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
MAX_TOKEN_ID = 2**31 - 1
MAX_LOGPROBS = 20
MAX_TIMEOUT_S = 1 << 30
MAX_SALT_CHARS = 1024


SUPERVISOR = "supervisor"
"""The launcher's own name on wires and on the board."""

EXIT_FAILED = 1
EXIT_REFUSED = 3
"""Exit status of a process that ended on purpose, and has reported why."""


def role_of(name: str) -> str:
    """The role in the name of a process: scheduler0 is a scheduler."""
    return name.rstrip("0123456789")


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
        _set = object.__setattr__
        if isinstance(self.stop, str):
            _set(self, "stop", (self.stop,))
        _set(self, "stop", _sequence("stop", self.stop))
        _set(self, "stop_token_ids", _sequence("stop_token_ids", self.stop_token_ids))

        _integer("n", self.n, 1, MAX_CHOICES)
        if self.max_tokens is not None:
            _integer("max_tokens", self.max_tokens, 0, MAX_TOKEN_ID)
        if self.logprobs is not None:
            _integer("logprobs", self.logprobs, 0, MAX_LOGPROBS)
        _integer("min_tokens", self.min_tokens, 0, MAX_TOKEN_ID)
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise InvalidRequest(
                f"min_tokens ({self.min_tokens}) must not be above max_tokens ({self.max_tokens})", "min_tokens"
            )
        _set(self, "temperature", _number("temperature", self.temperature, 0, MAX_TEMPERATURE))
        _integer("top_k", self.top_k, -1, MAX_TOKEN_ID)
        _set(self, "top_p", _number("top_p", self.top_p, 0, 1))
        if self.top_p == 0:
            raise InvalidRequest("top_p must be above 0", "top_p")
        _set(self, "min_p", _number("min_p", self.min_p, 0, 1))
        self._set_penalties()
        if self.seed is not None:
            _integer("seed", self.seed, -(2**63), 2**63 - 1)
        for name in ("ignore_eos", "include_stop_str_in_output", "skip_special_tokens"):
            if not isinstance(getattr(self, name), bool):
                raise InvalidRequest(f"{name} must be true or false", name)
        _integer("priority", self.priority, -(2**31), 2**31 - 1)
        _set(self, "timeout", _timeout(self.timeout))
        _check_salt(self.cache_salt)
        self._check_stops()
        _set(self, "logit_bias", _biases(self.logit_bias))

    def _set_penalties(self) -> None:
        for name in ("presence_penalty", "frequency_penalty"):
            object.__setattr__(self, name, _number(name, getattr(self, name), -MAX_PENALTY, MAX_PENALTY))
        least, most = MIN_REPETITION_PENALTY, MAX_REPETITION_PENALTY
        number = _number("repetition_penalty", self.repetition_penalty, least, most)
        object.__setattr__(self, "repetition_penalty", number)

    def _check_stops(self) -> None:
        if len(self.stop) > MAX_STOP_STRINGS:
            raise InvalidRequest(f"stop may hold at most {MAX_STOP_STRINGS} strings", "stop")
        for text in self.stop:
            if not isinstance(text, str) or not text:
                raise InvalidRequest("stop must be a string or strings, none of them empty", "stop")
            if len(text) > MAX_STOP_CHARS:
                raise InvalidRequest(f"a stop string may have at most {MAX_STOP_CHARS} characters", "stop")
            if _has_surrogate(text):
                raise InvalidRequest("stop must not hold half of a surrogate pair", "stop")
        if len(self.stop_token_ids) > MAX_STOP_IDS:
            raise InvalidRequest(f"stop_token_ids may hold at most {MAX_STOP_IDS} ids", "stop_token_ids")
        for token in self.stop_token_ids:
            _integer("stop_token_ids", token, 0, MAX_TOKEN_ID)

    @property
    def greedy(self) -> bool:
        return self.temperature < GREEDY_BELOW


def _timeout(value: object) -> float | None:
    if value is None:
        return None
    seconds = _number("timeout", value, 0, MAX_TIMEOUT_S)
    if seconds == 0:
        raise InvalidRequest("timeout must be above 0", "timeout")
    return seconds


def _check_salt(value: object) -> None:
    """As in vLLM, an empty salt is refused: it would be the same as none, which is hardly what was meant."""
    if value is None:
        return
    if not isinstance(value, str) or not 1 <= len(value) <= MAX_SALT_CHARS or _has_surrogate(value):
        raise InvalidRequest(
            f"cache_salt must be a string of 1 to {MAX_SALT_CHARS:,} characters, none of them half a surrogate pair",
            "cache_salt",
        )


def _has_surrogate(text: str) -> bool:
    """Whether a text holds half of a surrogate pair, which has no UTF-8."""
    return any("\ud800" <= char <= "\udfff" for char in text)


_TOKEN_ID = re.compile(r"[0-9]{1,10}")


def _biases(value: object) -> tuple[tuple[int, float], ...]:
    """Token ids and their biases, by id; JSON has ids as strings."""
    if value is None:
        return ()
    if isinstance(value, tuple) and all(isinstance(pair, tuple) and len(pair) == 2 for pair in value):
        value = dict(value)
    if not isinstance(value, Mapping):
        raise InvalidRequest("logit_bias must map token ids to numbers", "logit_bias")
    if len(value) > MAX_BIASES:
        raise InvalidRequest(f"logit_bias may have at most {MAX_BIASES} entries", "logit_bias")
    for token in value:
        if not _TOKEN_ID.fullmatch(str(token)) or int(token) > MAX_TOKEN_ID:
            raise InvalidRequest(f"logit_bias has {token!r:.40}, which is no token id", "logit_bias")
    biases = {int(token): _number("logit_bias", bias, -MAX_BIAS, MAX_BIAS) for token, bias in value.items()}
    return tuple(sorted(biases.items()))


def _sequence(name: str, value: object) -> tuple[object, ...]:
    if value is None:
        return ()
    if not isinstance(value, (list, tuple)):
        raise InvalidRequest(f"{name} must be a list", name)
    return tuple(value)


def _integer(name: str, value: object, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidRequest(f"{name} must be an integer", name)
    if not low <= value <= high:
        raise InvalidRequest(f"{name} must be between {low} and {high}", name)


def _number(name: str, value: object, low: float, high: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InvalidRequest(f"{name} must be a number", name)
    if not low <= value <= high:  # NaN compares false
        raise InvalidRequest(f"{name} must be between {low:g} and {high:g}", name)
    number = float(value)
    assert math.isfinite(number)
    return number
