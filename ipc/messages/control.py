"""Between every process and its supervisor."""

from __future__ import annotations

from dataclasses import dataclass

from ...common.types import State


@dataclass(frozen=True, slots=True)
class Report:
    """A process tells the supervisor what it is doing, in words an operator reads."""

    state: State
    text: str


@dataclass(frozen=True, slots=True)
class Drain:
    """Take no new requests; report STOPPED when the last one has ended."""
