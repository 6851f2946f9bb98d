"""What many requests do at the same moment: end, have their KV from elsewhere, wait to be admitted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ....common.figures import Figure, summarise
from ....common.types import TransferOutcome
from ....ipc.messages import RemoteKv, TransferReport
from .case import Effort, short
from .engine import BLOCK_SIZE, DEPTH, Engine, digests_of, now_ns

_ROOM_TOKENS = 256
"""What a request may generate: more than it does before it is made to end."""


def _blocks(requests: int, context: int) -> int:
    """Blocks for so many requests, and the headroom that admission wants."""
    return requests * (8 + context // BLOCK_SIZE)


@dataclass(frozen=True, slots=True)
class Endings:
    """`requests` running requests, each with blocks of its own, sample EOS in one step: the figure is its settling."""

    requests: int
    context: int
    target_ms: float | None = None

    @property
    def name(self) -> str:
        return f"endings-{self.requests}-{short(self.context)}"

    def run(self, effort: Effort) -> Iterator[Figure]:
        engine = Engine(
            rows=self.requests,
            blocks=_blocks(self.requests, self.context),
            max_model_len=self.context + _ROOM_TOKENS,
            budget=16 * self.requests,
        )
        prompts = [engine.text(self.context) for _ in range(self.requests)]
        digests = [digests_of(prompt) for prompt in prompts]
        settled = []
        for repeat in range(effort.repeats):
            rids = range(repeat * self.requests, (repeat + 1) * self.requests)
            engine.admit(zip(rids, prompts, digests, strict=True), _ROOM_TOKENS)
            engine.all_sample_eos = True
            engine.turn()  # plans the step in which all end and settles the one before
            assert engine.core.counts().running == self.requests == engine.open[-1].rows
            settled.append(engine.settle() / 1e6)
            assert not engine.core.counts().running
            engine.end_all()
        yield summarise(self.name, "settle", "ms", settled, self.target_ms)


@dataclass(frozen=True, slots=True)
class Received:
    """The KV of `requests` parked requests arrives, with a first token for each, between two plans.

    Figures: the tick, in which their reports are heard and all are promoted, their blocks published and their first
    tokens emitted; the messages of first words about them, which are made when the step is on its way to the executor;
    and the next plan, with a row for each, which the executor does not know yet. That it is another plan is made so: at
    the tick the pipeline is full, so that nothing can be planned.
    """

    requests: int
    context: int
    target_ms: float | None = None

    @property
    def name(self) -> str:
        return f"received-{self.requests}-{short(self.context)}"

    def run(self, effort: Effort) -> Iterator[Figure]:
        engine = Engine(
            rows=self.requests + 1,
            blocks=_blocks(self.requests + 1, self.context),
            max_model_len=self.context + _ROOM_TOKENS,
            consumer=True,
        )
        ticks, words, plans = [], [], []
        for repeat in range(effort.repeats):
            first = repeat * (self.requests + 1)
            reports = self._park(engine, first)
            ticks.append(self._tick(engine, reports))
            words.append(self._words(engine))
            engine.settle()
            cost = engine.plan()
            assert cost is not None and engine.open[-1].rows == self.requests + 1
            plans.append(cost)
            engine.end_all()
        heard, promoted = np.median(ticks, axis=0).tolist()
        parts = {"reports": heard, "promotion": promoted}
        yield summarise(self.name, "tick", "ms", [sum(tick) for tick in ticks], self.target_ms, parts)
        yield summarise(self.name, "first words", "ms", words)
        plan, message, _ = (np.median(plans, axis=0) / 1e6).tolist()
        both = [(cost.plan_ns + cost.message_ns) / 1e6 for cost in plans]
        yield summarise(self.name, "next plan", "ms", both, parts={"plan": plan, "message": message})

    def _park(self, engine: Engine, first: int) -> list[TransferReport]:
        """Park the requests beside one that decodes, with a full pipeline; what the worker will report."""
        remote = RemoteKv(prefilled=True, decoded=False, host="elsewhere", first_token=3)
        engine.submit(first, engine.text(1), _ROOM_TOKENS)
        rids = range(first + 1, first + 1 + self.requests)
        for rid in rids:
            engine.submit(rid, engine.text(self.context), _ROOM_TOKENS, remote=remote)
        while engine.plan():
            pass
        assert len(engine.open) == DEPTH and engine.core.counts().parked == self.requests
        assert len(engine.core.take_transfers()) == self.requests
        return [TransferReport(rid, 0, TransferOutcome.RECEIVED) for rid in rids]

    def _tick(self, engine: Engine, reports: list[TransferReport]) -> tuple[float, float]:
        """Hear the reports, and promote; the times of both in ms."""
        begun = now_ns()
        engine.core.transfer_report(*reports)
        heard = now_ns()
        step = engine.core.plan(engine.now)
        promoted = now_ns()
        assert step is None and not engine.core.counts().parked
        return (heard - begun) / 1e6, (promoted - heard) / 1e6

    def _words(self, engine: Engine) -> float:
        """Make the messages of the first words; the time in ms."""
        begun = now_ns()
        words = [emission.first_words for emission in engine.core.take_emissions()]
        made = now_ns()
        assert sum(map(len, words)) == self.requests
        return (made - begun) / 1e6


@dataclass(frozen=True, slots=True)
class PrefillBurst:
    """`requests` prompts of `context` tokens wait: figures of the plans, and of the whole steps, that prefill them."""

    requests: int
    context: int

    @property
    def name(self) -> str:
        return f"prefill-{self.requests}-{short(self.context)}"

    def run(self, effort: Effort) -> Iterator[Figure]:
        engine = Engine(
            rows=self.requests,
            blocks=_blocks(self.requests, self.context + _ROOM_TOKENS),
            max_model_len=self.context + _ROOM_TOKENS,
        )
        for rid in range(self.requests):
            engine.submit(rid, engine.text(self.context), _ROOM_TOKENS)
        costs = []
        while engine.core.counts().waiting:
            cost = engine.turn()
            assert cost is not None
            costs.append(cost)
        yield summarise(self.name, "plan", "ms", [cost.plan_ns / 1e6 for cost in costs])
        yield summarise(self.name, "step", "ms", [cost.ms for cost in costs])
