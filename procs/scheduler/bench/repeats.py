"""What is asked for again and again and must not be computed again: what the cache has for a prompt, and hashes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import CodeType, FrameType

from ....common.figures import Figure, summarise
from ...block_hash import chain, extend
from ..planning.admission import Admission
from ..state.checkpoints import Checkpoints
from .case import Effort, short
from .engine import BLOCK_SIZE, Engine, digests_of, now_ns


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
        blocks = self.prompt // BLOCK_SIZE
        spare = 4 + (effort.warm_up + 2 * effort.steps) // BLOCK_SIZE
        engine = Engine(
            rows=4, blocks=blocks + 2 * spare, max_model_len=self.prompt + effort.warm_up + 2 * effort.steps
        )
        prompt, cached = engine.text(self.prompt), self.prompt // 8 * 5
        engine.submit(0, prompt[:cached], 1)
        while engine.core.alive:
            engine.turn()
        long = engine.text(self.prompt - cached)
        engine.admit([(1, long, digests_of(long))], self.prompt)
        head = engine.submit(2, prompt, 1)
        core = engine.core
        slots = core.state_slots
        admission = Admission(core.table, core.pool, slots, Checkpoints(core.table, core.pool, slots, 0), 4, 64)
        probes, plans, hits = [], [], []
        for index in range(effort.warm_up + effort.steps):
            taken = core.pool.take(2 * spare + index)
            assert taken is not None
            core.pool.release(taken)
            ledger = admission.ledger(1, 1)
            begun = now_ns()
            probe = admission.probe(head)
            fits = admission.fits(head, probe, ledger)
            probes.append((now_ns() - begun) / 1e3)
            hits.append(probe.hits)
            cost = engine.turn()
            assert cost is not None and not fits
            plans.append(cost.plan_ns / 1e3)
        assert 0 < hits[-1] < hits[0], "the cache did not change"
        yield summarise(self.name, "probe", "µs", probes[effort.warm_up :], self.target_us)
        yield summarise(self.name, "plan", "µs", plans[effort.warm_up :])


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
