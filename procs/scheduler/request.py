"""One request inside the scheduler, and where it is in its life.

A request that holds a row keeps its counters in the row table, where a step can change all of them at
once; one that waits keeps its known tokens here.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, field

from ...ipc.messages import CacheKeys, Image, Limits, RemoteKv, Sampling
from ...ipc.ring import Tokens


class Phase(enum.Enum):
    """FRESH is new here; PARKED has a row and waits for its KV from elsewhere; RUNNING is in steps;
    PREEMPTED lost its row, here or with a scheduler that died, and waits; GONE has had its last word.
    """

    FRESH = enum.auto()
    PARKED = enum.auto()
    RUNNING = enum.auto()
    PREEMPTED = enum.auto()
    GONE = enum.auto()


@dataclass(slots=True, eq=False)
class Siblings:
    """The choices of one prompt. While some were never admitted, the blocks of the prompt that are computed
    are held for them, so that the prompt is prefilled once, whatever becomes of the one that did it.
    """

    fresh: int
    held: list[int] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Request:
    """A request. `tokens` are the known ones, prompt first, while it waits; `arrival` is its place for life.

    `digests` is the hash chain of its full blocks, the prompt's first, as far as it was ever computed; it is
    None where nothing may be shared. `token_limit` is the length, prompt included, at which it ends. `attempt`
    rises when it is preempted and when it ends: late reports about an earlier attempt are void. `suspended`: it
    has run and lost its row, by preemption or with the executor. `opened`: output has heard of it. `scored_tokens`:
    so many tokens of the prompt have their log-probabilities; the first has none. `stop_ids`: those of its limits, to
    look them up.
    `computed_tokens`: those whose KV it had when it lost its row.
    Times are of the monotonic clock, in seconds.
    """

    rid: int
    prompt_tokens: int
    tokens: Tokens
    seed: int
    sampling: Sampling
    limits: Limits
    ticket: bytes
    digests: list[bytes] | None = None
    keys: CacheKeys = field(default_factory=CacheKeys)
    priority: int = 0
    deadline_s: float = math.inf
    images: tuple[Image, ...] = ()
    mrope: bytes = b""
    mrope_delta: int = 0
    remote: RemoteKv | None = None
    siblings: Siblings | None = None
    needs_state: bool = False

    arrival: int = 0
    arrived_s: float = 0.0
    token_limit: int = 0
    phase: Phase = Phase.FRESH
    row: int = 0
    attempt: int = 0
    opened: bool = False
    admitted: bool = False
    cached_tokens: int = 0
    suspended: bool = False
    preemptions: int = 0
    bypassed: int = 0
    transfer_failed: bool = False
    scored_tokens: int = 1
    stop_ids: frozenset[int] = field(init=False)

    def __post_init__(self) -> None:
        self.stop_ids = frozenset(self.limits.stop_token_ids)

    computed_tokens: int = 0

    @property
    def waits(self) -> bool:
        return self.phase in (Phase.FRESH, Phase.PREEMPTED)

    @property
    def takes_hits(self) -> bool:
        """Whether it may resume from blocks that others computed: prompt logprobs need all of the prompt."""
        return bool(self.digests) and self.sampling.prompt_logprobs < 0

    @property
    def chunkable(self) -> bool:
        """Whether it is prefilled in chunks even where prompts are not."""
        return self.suspended
