"""Drives the scheduler's core with the fake executor, step by step, and keeps what every request was told."""

from __future__ import annotations

from collections import deque

import numpy as np

from fourstroke.common.types import Finish
from fourstroke.ipc.messages import Abort, Ended, Hello, Limits, Sampling, StepDone
from fourstroke.ipc.plan import StepShape, slots_for_depth, step_slots
from fourstroke.procs.executor.fake import EOS_TOKEN_ID, VOCAB_SIZE, FakeRunner
from fourstroke.procs.scheduler.core import Policy, Scheduler
from fourstroke.procs.scheduler.request import Request
from fourstroke.procs.scheduler.step import OpenStep

GREEDY = Sampling(0.0, 0, 1.0, 0.0, 0)


class Driver:
    """A core with the base set-up of small numbers: block 4, 10 blocks, 4 rows, budget 64, length 64, depth 1."""

    def __init__(
        self,
        *,
        block_size: int = 4,
        blocks: int = 10,
        rows: int = 4,
        budget: int = 64,
        max_model_len: int = 64,
        depth: int = 1,
        headroom: int = 0,
    ) -> None:
        shape = StepShape(rows, budget)
        self.slots = step_slots(bytearray(shape.memory_bytes(slots_for_depth(depth))), shape, slots_for_depth(depth))
        hello = Hello(blocks, block_size, max_model_len, VOCAB_SIZE, (EOS_TOKEN_ID,))
        policy = Policy(
            max_num_seqs=rows, max_num_batched_tokens=budget, pipeline_depth=depth, headroom_lookahead=headroom
        )
        self.core = Scheduler(policy, hello, self.slots)
        self.runner = FakeRunner(self.slots, hello, rows)
        self.depth = depth
        self.pending: deque[StepDone] = deque()
        self.outputs: dict[int, list[int]] = {}
        self.ended: dict[int, Ended] = {}
        self.opened: dict[int, int] = {}

    def submit(self, rid: int, prompt: list[int], max_tokens: int = 64, **limits: object) -> None:
        fields = {"min_tokens": 0, "ignore_eos": True, "stop_token_ids": (), **limits}
        self.core.submit(
            Request(rid, 0, len(prompt), np.array(prompt, np.int32), GREEDY, Limits(max_tokens, **fields), b"ticket")
        )
        self.take()

    def abort(self, rid: int, reason: Finish = Finish.ABORT) -> None:
        self.core.abort(Abort(rid, 0, reason, 0))
        self.take()

    def plan(self) -> OpenStep | None:
        """Plan a step and run it on the fake executor; its results wait until `settle`."""
        step = self.core.plan()
        self.take()
        if step is not None:
            self.pending.append(self.runner.run(step.plan))
        assert self.pending or not len(self.core.waiting), "somebody waits and nothing is under way"
        return step

    def settle(self, *tokens: int) -> None:
        """Settle the oldest step, with its own results or with these tokens in their place."""
        done = self.pending.popleft()
        if tokens:
            self.slots[done.slot].sampled[: len(tokens)] = tokens
        self.core.settle(self.slots[done.slot].sampled[: self.core.next_settled.plan.rows].copy(), done.errors)
        self.take()

    def turn(self) -> bool:
        """Plan if possible; settle if the pipeline is full or nothing was planned. False if nothing is left."""
        step = self.plan()
        if self.pending and (step is None or len(self.pending) >= self.depth):
            self.settle()
        return self.core.has_work

    def run(self, steps: int = 10_000) -> None:
        for _ in range(steps):
            if not self.turn():
                return
        raise AssertionError(f"work is left after {steps} turns")

    def take(self) -> None:
        """Take what the core has to say, and compare its books."""
        for emission in self.core.take_emissions():
            for opened in emission.opened:
                assert opened.rid not in self.opened, "opened twice"
                self.opened[opened.rid] = opened.cached_tokens
            for rid, token in zip(emission.rids.tolist(), emission.tokens.tolist(), strict=True):
                assert rid in self.opened and rid not in self.ended
                self.outputs.setdefault(rid, []).append(token)
            for ended in emission.ended:
                assert ended.rid in self.opened and ended.rid not in self.ended, "two last words"
                self.ended[ended.rid] = ended
        self.core.check()

    def counts_of(self, step: OpenStep | None) -> list[int]:
        """The planned tokens of each row of a step."""
        assert step is not None
        return step.counts.tolist()
