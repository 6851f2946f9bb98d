"""One request inside the scheduler, and where it is in its life.

A request that holds a row keeps its counters in the row table, where a step can change all of them at
once; one that waits keeps its known tokens here.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from ...ipc.messages import Limits, Sampling
from ...ipc.ring import Tokens

NO_ROW = -1


class Phase(enum.Enum):
    """FRESH was never admitted; RUNNING holds a row; PREEMPTED lost it and waits; GONE has ended."""

    FRESH = enum.auto()
    RUNNING = enum.auto()
    PREEMPTED = enum.auto()
    GONE = enum.auto()


@dataclass(slots=True, eq=False)
class Request:
    """A request. `tokens` are the known ones, prompt first, while it waits; `arrival` is its place for life.

    `total_limit` is the length, prompt included, at which it ends. `opened`: output has heard of it.
    """

    rid: int
    epoch: int
    prompt_tokens: int
    tokens: Tokens
    sampling: Sampling
    limits: Limits
    ticket: bytes
    total_limit: int = 0
    arrival: int = 0
    phase: Phase = Phase.FRESH
    row: int = NO_ROW
    opened: bool = False
    preemptions: int = 0
    cached_tokens: int = 0
