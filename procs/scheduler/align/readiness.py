"""What a rank says before it plans prefills, and the names of the answers.

The planner makes a Readiness; the algorithms of alignment turn those of all ranks into a Rule.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Readiness:
    """What a rank could do in this tick.

    `ready` means that two micro-batches are possible; it equals `prefillable` where batches are not split.
    `pending_tokens` is what one step could prefill, at most the budget. `usage` is the part of the KV blocks that is
    in use, 0 to 1. `partial` says that a prefill is in its middle. `oldest_ms` is the age of the oldest fresh
    request that waits.
    """

    prefillable: bool
    ready: bool
    pending_tokens: int
    running_decodes: int
    usage: float
    partial: bool
    oldest_ms: float


class Rule(enum.Enum):
    """Which line of an algorithm's table gave the answer."""

    OPEN = "alignment is off"
    ERROR = "the ranks did not agree"
    FIRST = "first call"
    VACUOUS = "no rank has prefills"

    FORCE = "a rank is short of work, or has waited its longest"
    READY = "all ranks are ready"
    OVERDUE = "refused as often or as long as may be"

    NODECODE = "no rank decodes"
    KV = "a rank has too many or too few blocks in use"
    AGE = "a request has waited its longest"
    TTFT = "held as many ticks as may be"
    PARTIAL = "held as many ticks as a prefill in its middle may be"
    FILL = "together the ranks fill a step"
    STALL = "what waits has stopped growing"

    MIXED = "some ranks are ready and some are not"
    FILLING = "what waits is little and still growing"

    @property
    def allows(self) -> bool:
        """Whether prefills may be planned."""
        return self not in (Rule.MIXED, Rule.FILLING)
