"""What is asked for again and again and must not be computed again: what the cache has for a prompt, and hashes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import CodeType, FrameType

from ....common.figures import Figure, summarise
from ....ipc.block_hash import chain, extend
from ..planning.admission import Admission
from ..request import Request
from ..state.checkpoints import Checkpoints
from .case import Effort, short
from .engine import BLOCK_SIZE, Engine, digests_of, now_ns

_ROWS = 4


@dataclass(frozen=True, slots=True)
class BlockedHead:
    """The first that waits has a prompt of `prompt` tokens, 5/8 of it in the cache, and does not fit.

    Figures: a probe of it with the question whether it fits; and a plan, in which one row decodes. Between two of them
    others take blocks and give them back, by which some that the prompt would have hit are lost.
    """

    prompt: int
    target_us: float | None = None

    @property
    def name(self) -> str:
        return f"blocked-head-{short(self.prompt)}"

    def run(self, effort: Effort) -> Iterator[Figure]:
        rounds = effort.warm_up + effort.steps
        engine = Engine(
            rows=_ROWS, blocks=self.prompt // BLOCK_SIZE + _spare_blocks(rounds), max_model_len=self.prompt + 2 * rounds
        )
        head = self._wait(engine)
        admission = _admission(engine)
        probes, plans, hits = [], [], []
        for index in range(rounds):
            _evict(engine, _spare_blocks(rounds) + index)
            ledger = admission.ledger(1, 1)
            begun = now_ns()
            probe = admission.probe(head)
            fits = admission.fits(head, probe, ledger)
            probes.append((now_ns() - begun) / 1e3)
            hits.append(probe.hits)
            cost = engine.turn()
            assert cost is not None and not fits, "the head is not blocked"
            plans.append(cost.plan_ns / 1e3)
        assert 0 < hits[-1] < hits[0], "the cache did not change"
        yield summarise(self.name, "probe", "µs", probes[effort.warm_up :], self.target_us)
        yield summarise(self.name, "plan", "µs", plans[effort.warm_up :])

    def _wait(self, engine: Engine) -> Request:
        """The head, which waits: one that has ended computed a part of it, and one that runs has all other blocks."""
        prompt, cached = engine.text(self.prompt), self.prompt // 8 * 5
        engine.submit(0, prompt[:cached], 1)
        while engine.core.alive:
            engine.turn()
        other = engine.text(self.prompt - cached)
        engine.admit([(1, other, digests_of(other))], self.prompt)
        return engine.submit(2, prompt, 1)


def _spare_blocks(rounds: int) -> int:
    """Blocks for the one that runs: more than it comes to need, so that the pool is never full."""
    return 8 + 2 * (rounds // BLOCK_SIZE)


def _admission(engine: Engine) -> Admission:
    """The same questions about the core's rows and blocks that its own admission answers."""
    table, pool, slots = engine.core.table, engine.core.pool, engine.core.state_slots
    lookahead = engine.core.policy.headroom_lookahead
    return Admission(table, pool, slots, Checkpoints(table, pool, slots, 0), _ROWS, lookahead)


def _evict(engine: Engine, blocks: int) -> None:
    """Take so many blocks, cached ones when no others are left, and give them back."""
    taken = engine.core.pool.take(blocks)
    assert taken is not None
    engine.core.pool.release(taken)


@dataclass(frozen=True, slots=True)
class Hashes:
    """How often the scheduler hashes a block that was generated: while requests wait, are preempted and come back.

    Prompts come with their hashes.
    """

    requests: int = 20
    blocks: int = 64
    prompt: int = 32
    generated: int = 200

    @property
    def name(self) -> str:
        return "hashes"

    def run(self, effort: Effort) -> Iterator[Figure]:
        engine = Engine(rows=self.requests, blocks=self.blocks, max_model_len=self.prompt + self.generated + 1)
        for rid in range(self.requests):
            engine.submit(rid, engine.text(self.prompt), self.generated)
        with _calls_of(chain.__code__, extend.__code__) as calls:
            while engine.core.alive:
                engine.turn()
        assert engine.core.statistics.preemptions, "nobody was preempted"
        full = (self.prompt + self.generated - 1) // BLOCK_SIZE - self.prompt // BLOCK_SIZE
        yield summarise(self.name, "of a block", "calls", [len(calls) / (self.requests * full)], 1)


@contextmanager
def _calls_of(*functions: CodeType) -> Iterator[list[CodeType]]:
    """The calls of some functions, as they happen."""
    calls = []

    def profile(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code in functions:
            calls.append(frame.f_code)

    sys.setprofile(profile)
    try:
        yield calls
    finally:
        sys.setprofile(None)
