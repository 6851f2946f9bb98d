"""Steady decode: nobody comes and nobody goes, and every running request gets its next token in every step."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ....common.figures import Figure, summarise
from .case import Effort, short
from .engine import BLOCK_SIZE, Engine, digests_of

_STEPS_TO_ADMIT = 400
"""More than it takes until all run: the first of 1,024 with 64k tokens decode 300 steps earlier than the last."""


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

        Their prompts have all but the last few tokens in common. The first request computes these for the prefix
        cache, so that all others are admitted by their hits. The ends differ in length: in every step one of sixteen
        rows needs a block and has one to hash and to publish, not all rows in one step of sixteen.
        """
        growth = (1 + self.drafts) * (effort.warm_up + effort.steps + _STEPS_TO_ADMIT)
        engine = Engine(
            rows=self.rows,
            blocks=self.context // BLOCK_SIZE + self.rows * (8 + growth // BLOCK_SIZE),
            max_model_len=self.context + growth + 2 * BLOCK_SIZE,
            drafts=self.drafts,
        )
        common = engine.text(self.context)
        digests = digests_of(common)
        ends = (engine.text(1 + rid % (BLOCK_SIZE - 1)) for rid in range(self.rows))
        requests = ((rid, np.concatenate((common, end)), digests) for rid, end in enumerate(ends))
        engine.admit(itertools.islice(requests, 1), growth)
        engine.admit(requests, growth)
        return engine
