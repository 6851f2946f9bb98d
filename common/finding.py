"""What `fourstroke doctor` says: findings, each of one fact, and what it is looking at while it does.

The program that knows torch prints them a line each, as JSON, and the launcher reads them. What is found, and
what is wrong with it, others decide.
"""

from __future__ import annotations

import dataclasses
import enum
import json
from dataclasses import dataclass
from typing import Any


class Level(enum.StrEnum):
    """GREEN is as it should be, YELLOW works but could do better, RED must be mended."""

    GREEN = "green"
    YELLOW = "yellow"
    RED = "red"


@dataclass(frozen=True, slots=True)
class Finding:
    """One fact: what it is about, what was found and, unless it is green, what to do about it in one sentence."""

    subject: str
    level: Level
    found: str
    advice: str = ""

    def __post_init__(self) -> None:
        if (self.level == Level.GREEN) != (not self.advice):
            raise ValueError(f"{self.subject} is {self.level} and its advice is {self.advice!r}")

    @property
    def line(self) -> str:
        """The finding as JSON, in one line."""
        return json.dumps(dataclasses.asdict(self))


@dataclass(frozen=True, slots=True)
class Doing:
    """What is looked at from now on: the place to name if nothing comes after it."""

    doing: str

    @property
    def line(self) -> str:
        """The same as JSON, in one line."""
        return json.dumps(dataclasses.asdict(self))


def read_line(line: str) -> Finding | Doing:
    """What a line says. Raises ValueError if it is neither."""
    fields: Any = json.loads(line)
    if not isinstance(fields, dict) or not all(isinstance(value, str) for value in fields.values()):
        raise ValueError(f"no finding: {line:.80}")
    if fields.keys() == {"doing"}:
        return Doing(fields["doing"])
    if fields.keys() != set(Finding.__slots__):
        raise ValueError(f"no finding: {line:.80}")
    return Finding(fields["subject"], Level(fields["level"]), fields["found"], fields["advice"])


def green(subject: str, found: str) -> Finding:
    """As it should be."""
    return Finding(subject, Level.GREEN, found)


def yellow(subject: str, found: str, advice: str) -> Finding:
    """Works, but could do better."""
    return Finding(subject, Level.YELLOW, found, advice)


def red(subject: str, found: str, advice: str) -> Finding:
    """Must be mended."""
    return Finding(subject, Level.RED, found, advice)
