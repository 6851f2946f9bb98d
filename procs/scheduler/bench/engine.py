"""The scheduler's core with a stand-in for the executor, which gives every row its results at once.

Measured is the CPU time of this thread: what the core and the codec take, whatever else the machine does. What the
stand-in takes is not measured. The clock that the core is told counts turns.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from ....ipc.block_hash import chain
from ....ipc.codec import decode, encode
from ....ipc.messages import DIGEST_BYTES, CacheKeys, Hello, Limits, RemoteKv, Sampling, StepPlan
from ....ipc.plan import StepShape, slots_for_depth, step_slots
from ....ipc.ring import Tokens
from ..core import Scheduler
from ..policy import Policy
from ..request import Request
from ..transfer.connector import Connector, Role

BLOCK_SIZE = 16
DEPTH = 2
BUDGET = 8192
"""Tokens in a step: enough for 1,024 rows with three drafts each, and for prompts beside them."""

_EOS_TOKEN_ID, _FIRST_TEXT_ID, _VOCAB_SIZE = 2, 3, 49_152
_GREEDY = Sampling(0.0, 0, 1.0, 0.0)
_ROW_COLUMNS, _BLOCK_COLUMNS = 7, 3
"""Of int32, in a step slot, beside the tokens."""

now_ns = time.thread_time_ns


class PlanCost(NamedTuple):
    """What a plan costs: to make, to send and to receive, in ns; and the bytes of its frame and its columns."""

    plan_ns: int
    message_ns: int
    metadata_bytes: int


class StepCost(NamedTuple):
    """What a turn of the engine costs: a plan, and the settling of the step before, in ns."""

    plan_ns: int
    message_ns: int
    settle_ns: int
    metadata_bytes: int

    @property
    def ms(self) -> float:
        return (self.plan_ns + self.message_ns + self.settle_ns) / 1e6


class Engine:
    """A scheduler with production's settings: depth 2, the prefix cache on, no drafts unless said otherwise."""

    def __init__(
        self,
        *,
        rows: int,
        blocks: int,
        max_model_len: int,
        budget: int = BUDGET,
        drafts: int = 0,
        consumer: bool = False,
    ) -> None:
        shape, slots = StepShape(rows, budget, drafts), slots_for_depth(DEPTH)
        self._slots = step_slots(bytearray(shape.memory_bytes(slots)), shape, slots)
        policy = Policy(max_num_seqs=rows, max_num_batched_tokens=budget, pipeline_depth=DEPTH, drafts=drafts)
        hello = Hello(blocks, BLOCK_SIZE, max_model_len, _VOCAB_SIZE, (_EOS_TOKEN_ID,))
        self.core = Scheduler(policy, hello, self._slots, connector=Connector(Role(consumer=consumer)))
        self.open: deque[StepPlan] = deque()
        self.now = 0.0
        self.all_sample_eos = False
        self._drafts = drafts
        self._random = np.random.default_rng(0)

    def text(self, tokens: int) -> Tokens:
        """Random tokens, none of which is EOS."""
        return self._random.integers(_FIRST_TEXT_ID, _VOCAB_SIZE, tokens, np.int32)

    def submit(
        self,
        rid: int,
        prompt: Tokens,
        max_tokens: int,
        digests: list[bytes] | None = None,
        remote: RemoteKv | None = None,
    ) -> Request:
        """Hand in a request. `digests` are those of its full blocks, where they are known already."""
        request = Request(
            rid=rid,
            prompt_tokens=len(prompt),
            tokens=prompt,
            seed=rid,
            sampling=_GREEDY,
            limits=Limits(max_tokens, 0, False, ()),
            ticket=b"",
            digests=digests_of(prompt) if digests is None else list(digests),
            remote=remote,
        )
        self.core.submit(request, self.now)
        return request

    def turn(self) -> StepCost | None:
        """Plan a step and, if the pipeline is full then, settle the one before; None if nothing was planned."""
        self.now += 1
        cost = self.plan()
        if cost is None:
            if self.open:
                self.settle()
            return None
        settle_ns = self.settle() if len(self.open) == DEPTH else 0
        return StepCost(cost.plan_ns, cost.message_ns, settle_ns, cost.metadata_bytes)

    def plan(self) -> PlanCost | None:
        """Plan a step, send it and have it executed."""
        begun = now_ns()
        step = self.core.plan(self.now)
        planned = now_ns()
        if step is None:
            return None
        frame = encode(step.plan)
        plan: StepPlan = decode(frame, StepPlan)
        received = now_ns()
        self._execute(plan)
        columns = 4 * (_ROW_COLUMNS * plan.rows + plan.tokens + _BLOCK_COLUMNS * plan.blocks)
        return PlanCost(planned - begun, received - planned, len(frame) + columns)

    def _execute(self, plan: StepPlan) -> None:
        """Every row gets some of its drafts accepted, at random, and one token more."""
        slot, rows = self._slots[plan.slot], plan.rows
        slot.produced[:rows] = 1 + self._random.integers(0, slot.drafts[:rows] + 1)
        slot.drafted[:rows] = self._drafts
        slot.sampled[:rows] = self._random.integers(_FIRST_TEXT_ID, _VOCAB_SIZE, (rows, 1 + self._drafts))
        if self.all_sample_eos:
            slot.sampled[:rows] = _EOS_TOKEN_ID
        self.open.append(plan)

    def settle(self) -> int:
        """Settle the oldest open step and take what output is told; the time in ns."""
        self.open.popleft()
        begun = now_ns()
        self.core.settle((), self.now)
        self.core.take_emissions()
        return now_ns() - begun

    def admit(self, requests: Iterable[tuple[int, Tokens, list[bytes]]], max_tokens: int) -> None:
        """Hand in requests (id, prompt, digests), and turn until every prompt is computed."""
        for rid, prompt, digests in requests:
            self.submit(rid, prompt, max_tokens, digests)
        while self.core.counts().waiting or self.core.forecast().prefill_tokens:
            self.turn()

    def end_all(self) -> None:
        """Turn until everybody has sampled EOS and nothing is left to do."""
        self.all_sample_eos = True
        while self.core.alive:
            self.turn()
        self.all_sample_eos = False


def digests_of(prompt: Tokens) -> list[bytes]:
    """The hash chain of a prompt's full blocks, as ingest computes it."""
    packed = chain(prompt, BLOCK_SIZE, CacheKeys(), ())
    return [packed[at : at + DIGEST_BYTES] for at in range(0, len(packed), DIGEST_BYTES)]
