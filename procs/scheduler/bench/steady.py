"""Steady decode: nobody comes and nobody goes, and every running request gets its next token in every step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ....common.figures import Figure, summarise
from ....ipc.plan import StepShape
from ....ipc.ring import Tokens
from .case import Effort, short
from .engine import BLOCK_SIZE, BUDGET, Engine, digests_of


@dataclass(frozen=True, slots=True)
class SteadyDecode:
    """`rows` running requests with contexts of `context` tokens, and up to `drafts` drafts for each.

    Figures: a step, that is plan, encode and decode of the message, and settle; and the bytes that a plan is made of.
    """

    rows: int
    context: int
    drafts: int = 0
    target_ms: float | None = None
    target_bytes: float | None = None

    @property
    def name(self) -> str:
        return f"decode-{self.rows}-{short(self.context)}" + ("-drafts" if self.drafts else "")

    def run(self, effort: Effort) -> Iterator[Figure]:
        engine = self._running(effort)
        for _ in range(effort.warm_up):
            engine.turn()
        costs = [cost for _ in range(effort.steps) if (cost := engine.turn())]
        assert len(costs) == effort.steps and engine.open[-1].rows == self.rows, "it was no steady decode"
        plan, message, settle, _ = (np.median(costs, axis=0) / 1e6).tolist()
        parts = {"plan": plan, "message": message, "settle": settle}
        yield summarise(self.name, "step", "ms", [cost.ms for cost in costs], self.target_ms, parts)
        yield summarise(self.name, "metadata", "bytes", [cost.metadata_bytes for cost in costs], self.target_bytes)

    def _running(self, effort: Effort) -> Engine:
        """An engine in which all requests decode.

        Their prompts have all but the last few tokens in common. The first request computes these for the prefix cache,
        so that all others are admitted by their hits. The ends differ in length: in every step one of sixteen rows needs
        a block and has one to hash and to publish, not all rows in one step of sixteen.
        """
        waves = self._waves()
        steps = effort.warm_up + effort.steps + 4 * len(waves) + self.context // BUDGET
        growth = (1 + self.drafts) * steps + 4 * BLOCK_SIZE
        engine = Engine(
            rows=self.rows,
            blocks=self.context // BLOCK_SIZE + self.rows * (8 + growth // BLOCK_SIZE),
            max_model_len=self.context + growth + 2 * BLOCK_SIZE,
            drafts=self.drafts,
        )
        common = engine.text(self.context)
        digests = digests_of(common)
        for wave in waves:
            for rid in wave:
                engine.submit(rid, _with_an_end(engine, common, rid), growth, digests)
            engine.admit_all()
        return engine

    def _waves(self) -> list[Sequence[int]]:
        """Request ids in portions whose block tables one plan can carry."""
        most = StepShape(self.rows, BUDGET, self.drafts).max_blocks // (8 + self.context // BLOCK_SIZE)
        rest = range(1, self.rows)
        return [range(1), *(rest[at : at + most] for at in range(0, len(rest), most))]


def _with_an_end(engine: Engine, common: Tokens, rid: int) -> Tokens:
    return np.concatenate((common, engine.text(1 + rid % (BLOCK_SIZE - 1))))
