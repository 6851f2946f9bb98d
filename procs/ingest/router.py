"""Which engine computes a prompt: the one that would have it done first, as far as can be guessed from here.

An engine's work is the sum over its choices of their prompts' tokens and of what they may generate; a choice counts
from its submission to its end. A prompt goes where that work and what is left of the prompt are least together: an
engine that has computed the beginning of the prompt before, and so has it in its prefix cache, needs only the rest.
So affinity gives way as soon as that engine is further behind the others than its cache would save. Among equals the
one that has had the fewest prompts from here is next. All choices of a prompt go to one engine, which prefills it once.

An engine that is not ready, because one of its processes is being replaced, is taken to be further behind than it is.
What it had is handed over again when the dead are known: then each prompt is placed as if it were new.

Work is counted over all ingests (ipc/loads.py); who has computed which beginnings, each knows of its own prompts.

Who calls: the table of live requests, and the process's loop for `retry`. What an engine does with a prompt, and what
is really in its cache, this knows not.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from ...common.types import Finish
from ...ipc.loads import Loads
from ...ipc.messages import DIGEST_BYTES
from .live import Choice
from .lives import Replaced
from .submit import Submitter

EXPECTED_TOKENS = 256
"""A choice is taken to generate so many tokens at most: `max_tokens` is often the whole context, and rarely reached."""

AWAY_TOKENS = 1 << 14
"""An engine that is not ready is this far behind: about what one computes in the seconds that a restart takes."""

MAX_PREFIXES = 1 << 16
"""Prefixes whose engine is remembered; one takes about 150 bytes."""


class Router:
    """All engines as one, over the ways to their schedulers."""

    def __init__(
        self,
        ways: Sequence[Submitter],
        loads: Loads | None = None,
        first: int = 0,
        max_prefixes: int = MAX_PREFIXES,
        ready: Callable[[int], bool] = lambda engine: True,
    ) -> None:
        """`loads`: what all ingests have given the engines; None if there is no other ingest.

        `first` is the engine that is next while all are equal: another one in each ingest. `ready` tells whether an
        engine can compute now.
        """
        self._ways = ways
        self._loads = Loads.alone(len(ways)) if loads is None else loads
        self._first = first
        self._ready = ready
        self._prompts = [0] * len(ways)
        self._placed: dict[int, _Placed] = {}
        self._homes = _Homes(max_prefixes)

    @property
    def prompt_capacity(self) -> int:
        """Tokens of the longest run that can be handed over: a prompt and what was generated behind it."""
        return min(way.prompt_capacity for way in self._ways)

    @property
    def ring_tokens(self) -> int:
        return sum(way.ring_tokens for way in self._ways)

    @property
    def engines(self) -> int:
        return len(self._ways)

    @property
    def work(self) -> tuple[int, ...]:
        """Tokens that each engine has still to compute, by the guess above; a running choice counts in full."""
        return tuple(self._loads.totals)

    def submit(self, choices: list[Choice]) -> None:
        """Hand the choices of a prompt to an engine."""
        self._ways[self._place(choices)].submit(choices)

    def resubmit(self, submissions: Sequence[list[Choice]]) -> None:
        """Hand over what those that were replaced have lost, before what waits for room."""
        by_engine: dict[int, list[list[Choice]]] = {}
        for choices in submissions:
            by_engine.setdefault(self._place(choices), []).append(choices)
        for engine, of_engine in by_engine.items():
            self._ways[engine].resubmit(of_engine)

    def lost(self, replaced: Replaced) -> Collection[int]:
        """The ids of choices that those had who were replaced. What waits here for room is not lost."""
        waiting = frozenset[int]().union(*[way.waiting for way in self._ways])
        for engine in replaced.engines:
            self._homes.forget(engine)
        return {rid for rid, placed in self._placed.items() if replaced.had(placed.engine, rid) and rid not in waiting}

    def _place(self, choices: list[Choice]) -> int:
        """Choose the engine for a prompt, and count what that has to do now."""
        engine = self._choose(choices[0])
        self._homes.remember(choices[0].digests, engine)
        self._prompts[engine] += 1
        for choice in choices:
            work = min(choice.limits.max_tokens - choice.generated_tokens, EXPECTED_TOKENS)
            if choice is choices[0]:
                work += len(choice.prompt) + choice.generated_tokens
            self._placed[choice.rid] = _Placed(engine, work)
            self._loads.add(engine, work)
        return engine

    def _choose(self, choice: Choice) -> int:
        home, blocks = self._homes.find(choice.digests)
        cached = len(choice.prompt) * blocks * DIGEST_BYTES // max(1, len(choice.digests))
        work, engines = self._loads.totals, len(self._ways)

        if engines == 1:
            return 0

        def behind(engine: int) -> tuple[int, int, int]:
            left = work[engine] - (cached if engine == home else 0)
            left += 0 if self._ready(engine) else AWAY_TOKENS
            return left, self._prompts[engine], (engine - self._first) % engines

        return min(range(engines), key=behind)

    def abort(self, choice: Choice, reason: Finish, keep: int) -> bool:
        """End a choice where it is; false if no engine has heard of it."""
        return self._ways[self._placed[choice.rid].engine].abort(choice, reason, keep)

    def ended(self, choice: Choice) -> None:
        """A choice has ended: its engine has less to do."""
        engine, work = self._placed.pop(choice.rid)
        self._loads.add(engine, -work)

    def reset_cache(self, engine: int, rid: int, force: bool) -> None:
        """Have an engine forget its prefix cache. The answer is the ending of `rid`."""
        self._homes.forget(engine)
        self._ways[engine].reset_cache(rid, force)

    def retry(self) -> list[Choice]:
        """Hand over what waits, as far as there is room. Returns the choices whose time was up before."""
        return [choice for way in self._ways for choice in way.retry()]


class _Placed(NamedTuple):
    """Where a choice is, and what it counts there."""

    engine: int
    work: int


class _Homes:
    """The engine that was last given each prefix of 1, 2, 4, 8, ... blocks; the least recently given are forgotten."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._engines: dict[bytes, int] = {}

    def find(self, digests: bytes) -> tuple[int, int]:
        """The engine that has the longest known prefix of a prompt, and its blocks: (-1, 0) if none is known."""
        for blocks, digest in reversed(_marks(digests)):
            engine = self._engines.get(digest)
            if engine is not None:
                return engine, blocks
        return -1, 0

    def remember(self, digests: bytes, engine: int) -> None:
        for _, digest in _marks(digests):
            self._engines.pop(digest, None)
            self._engines[digest] = engine
        while len(self._engines) > self._most:
            del self._engines[next(iter(self._engines))]

    def forget(self, engine: int) -> None:
        """An engine has forgotten all prefixes."""
        self._engines = {digest: home for digest, home in self._engines.items() if home != engine}


def _marks(digests: bytes) -> list[tuple[int, bytes]]:
    """The digests that name the prefixes of 1, 2, 4, 8, ... blocks of a prompt."""
    blocks = len(digests) // DIGEST_BYTES
    depths = [1 << power for power in range(blocks.bit_length())]
    return [(depth, digests[(depth - 1) * DIGEST_BYTES : depth * DIGEST_BYTES]) for depth in depths]
