"""What the value of a parameter may be: a rule checks values, and describes as JSON Schema which of them pass.

So what is described to clients cannot differ from what is checked. A rule knows no parameter: common/types.py has a
table of them, the HTTP API and the offline API check by it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from .errors import InvalidRequest

Schema = dict[str, Any]
"""A JSON Schema, of the 2020-12 draft."""

MAX_TOKEN_ID = 2**31 - 1

_TOKEN_ID = re.compile(r"[0-9]{1,10}")


class Rule(Protocol):
    """One kind of value with its bounds."""

    def check(self, name: str, value: object) -> Any:
        """The value in the form in which it is kept. Raises InvalidRequest, which names the parameter."""

    def schema(self) -> Schema:
        """What passes, as JSON has it. What a schema cannot say is in its description."""


@dataclass(frozen=True, slots=True)
class Integer:
    """An int in [low, high]; true is not 1, and 1.0 is not 1."""

    low: int
    high: int

    def check(self, name: str, value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise InvalidRequest(f"{name} must be an integer", name)
        if not self.low <= value <= self.high:
            raise InvalidRequest(f"{name} must be between {self.low} and {self.high}", name)
        return value

    def schema(self) -> Schema:
        return {"type": "integer", "minimum": self.low, "maximum": self.high}


@dataclass(frozen=True, slots=True)
class Number:
    """A finite number in [low, high], or in (low, high] where it must be `above` low."""

    low: float
    high: float
    above: bool = False

    def check(self, name: str, value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InvalidRequest(f"{name} must be a number", name)
        if not self.low <= value <= self.high:  # NaN compares false
            raise InvalidRequest(f"{name} must be between {self.low:g} and {self.high:g}", name)
        number = float(value)
        assert math.isfinite(number)
        if self.above and number <= self.low:
            raise InvalidRequest(f"{name} must be above {self.low:g}", name)
        return number

    def schema(self) -> Schema:
        least = "exclusiveMinimum" if self.above else "minimum"
        return {"type": "number", least: self.low, "maximum": self.high}


@dataclass(frozen=True, slots=True)
class Flag:
    """True or false."""

    def check(self, name: str, value: object) -> bool:
        if not isinstance(value, bool):
            raise InvalidRequest(f"{name} must be true or false", name)
        return value

    def schema(self) -> Schema:
        return {"type": "boolean"}


@dataclass(frozen=True, slots=True)
class Text:
    """A string of 1 to `most` characters."""

    most: int

    def check(self, name: str, value: object) -> str:
        if not isinstance(value, str) or not 1 <= len(value) <= self.most or _has_surrogate(value):
            raise InvalidRequest(
                f"{name} must be a string of 1 to {self.most:,} characters, none of them half a surrogate pair", name
            )
        return value

    def schema(self) -> Schema:
        return {"type": "string", "minLength": 1, "maxLength": self.most}


@dataclass(frozen=True, slots=True)
class Texts:
    """A string, or up to `count` of them, each of 1 to `most` characters. Kept as a tuple; None is the empty one."""

    count: int
    most: int

    def check(self, name: str, value: object) -> tuple[str, ...]:
        texts = (value,) if isinstance(value, str) else _sequence(name, value)
        if len(texts) > self.count:
            raise InvalidRequest(f"{name} may hold at most {self.count} strings", name)
        return tuple([self._checked(name, text) for text in texts])

    def _checked(self, name: str, text: object) -> str:
        if not isinstance(text, str) or not text:
            raise InvalidRequest(f"{name} must be a string or strings, none of them empty", name)
        if len(text) > self.most:
            raise InvalidRequest(f"a string in {name} may have at most {self.most} characters", name)
        if _has_surrogate(text):
            raise InvalidRequest(f"{name} must not hold half of a surrogate pair", name)
        return text

    def schema(self) -> Schema:
        one = Text(self.most).schema()
        return {"anyOf": [one, {"type": "array", "maxItems": self.count, "items": one}]}


@dataclass(frozen=True, slots=True)
class TokenIds:
    """Up to `count` ids of tokens. Kept as a tuple; None is the empty one."""

    count: int

    def check(self, name: str, value: object) -> tuple[int, ...]:
        tokens = _sequence(name, value)
        if len(tokens) > self.count:
            raise InvalidRequest(f"{name} may hold at most {self.count} ids", name)
        return tuple([Integer(0, MAX_TOKEN_ID).check(name, token) for token in tokens])

    def schema(self) -> Schema:
        return {"type": "array", "maxItems": self.count, "items": Integer(0, MAX_TOKEN_ID).schema()}


@dataclass(frozen=True, slots=True)
class Biases:
    """Numbers in [-most, most] for up to `count` token ids, which JSON has as strings. Kept as pairs, by id."""

    count: int
    most: float

    def check(self, name: str, value: object) -> tuple[tuple[int, float], ...]:
        if value is None:
            return ()
        if isinstance(value, tuple) and all(isinstance(pair, tuple) and len(pair) == 2 for pair in value):
            value = dict(value)
        if not isinstance(value, Mapping):
            raise InvalidRequest(f"{name} must map token ids to numbers", name)
        if len(value) > self.count:
            raise InvalidRequest(f"{name} may have at most {self.count} entries", name)
        for token in value:
            if not _TOKEN_ID.fullmatch(str(token)) or int(token) > MAX_TOKEN_ID:
                raise InvalidRequest(f"{name} has {token!r:.40}, which is no token id", name)
        rule = Number(-self.most, self.most)
        return tuple(sorted({int(token): rule.check(name, bias) for token, bias in value.items()}.items()))

    def schema(self) -> Schema:
        return {
            "type": "object",
            "maxProperties": self.count,
            "propertyNames": {"pattern": f"^{_TOKEN_ID.pattern}$"},
            "additionalProperties": Number(-self.most, self.most).schema(),
        }


def _sequence(name: str, value: object) -> tuple[object, ...]:
    if value is None:
        return ()
    if not isinstance(value, list | tuple):
        raise InvalidRequest(f"{name} must be a list", name)
    return tuple(value)


def _has_surrogate(text: str) -> bool:
    """Whether a text holds half of a surrogate pair, which has no UTF-8."""
    return any("\ud800" <= char <= "\udfff" for char in text)
