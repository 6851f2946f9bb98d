"""Between every process and its supervisor, and the first word of a process that takes the place of another."""

from __future__ import annotations

from dataclasses import dataclass

from ...common.types import State


@dataclass(frozen=True, slots=True)
class Report:
    """A process tells the supervisor what it is doing, in words an operator reads."""

    state: State
    text: str


@dataclass(frozen=True, slots=True)
class Began:
    """The sender has begun anew: what the process before it has said, or was told, is void."""


@dataclass(frozen=True, slots=True)
class Drain:
    """Take no new requests; report STOPPED when the last one has ended."""
