"""The scheduler's core with the real runner and a tiny random model in float32: texts do not depend on the arrangement.

The ring's other tests have an executor of invented tokens, whose cache shows any wrong block or position. Here it is
real attention over a real cache, with lengths at the edges of blocks and of the model.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from fourstroke.ipc.messages import Limits, Sampling
from fourstroke.ipc.plan import StepShape, slots_for_depth, step_slots
from fourstroke.procs.executor.runner import load_runner
from fourstroke.procs.scheduler.core import Policy, Scheduler
from fourstroke.procs.scheduler.request import Request

from ..unit.procs.executor.driver import executor_config
from ..unit.procs.executor.tiny import CONTEXT, save_folder, tiny_weights

BLOCK = 8
PROMPTS = [[5 + n] * n for n in (1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 3 * BLOCK - 1, CONTEXT - 2, CONTEXT - 1)]
TOKENS = 20


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return save_folder(tmp_path_factory.mktemp("models") / "tiny", tiny_weights())


def generate(
    model: Path, prompts: Sequence[list[int]], *, rows: int = 8, budget: int = 512, depth: int = 2, blocks: int = 256
) -> tuple[list[list[int]], Scheduler]:
    """What is generated after each prompt, half of them sampled, half greedy; and the scheduler, for its counts."""
    config = executor_config(
        model,
        block_size=BLOCK,
        num_blocks=blocks,
        max_num_seqs=rows,
        max_num_batched_tokens=budget,
        max_model_len=CONTEXT,
        pipeline_depth=depth,
    )
    shape, count = StepShape(rows, budget), slots_for_depth(depth)
    slots = step_slots(bytearray(shape.memory_bytes(count)), shape, count)
    runner = load_runner(config, slots, lambda _: None)
    policy = Policy(max_num_seqs=rows, max_num_batched_tokens=budget, pipeline_depth=depth, headroom_lookahead=0)
    core = Scheduler(policy, runner.hello, slots)
    outputs: dict[int, list[int]] = {rid: [] for rid in range(len(prompts))}
    for rid, prompt in enumerate(prompts):
        sampling = Sampling(float(rid % 2), 0, 1.0, 0.0, rid)
        limits = Limits(TOKENS, 0, True, ())
        core.submit(Request(rid, 0, len(prompt), np.array(prompt, np.int32), sampling, limits, b""))
    pending = deque()
    while core.has_work:
        step = core.plan()
        if step is not None:
            pending.append(runner.run(step.plan))
        if pending and (step is None or len(pending) == depth):
            done = pending.popleft()
            assert core.next_settled is not None
            core.settle(slots[done.slot].sampled[: core.next_settled.plan.rows].copy(), done.errors)
        for emission in core.take_emissions():
            for rid, token in zip(emission.rids.tolist(), emission.tokens.tolist(), strict=True):
                outputs[rid].append(token)
        core.check()
    return list(outputs.values()), core


@pytest.fixture(scope="module")
def alone(model: Path) -> list[list[int]]:
    """One request at a time, prompts whole, depth 1."""
    return generate(model, PROMPTS, rows=1, depth=1)[0]


def test_lengths_at_the_edges(alone: list[list[int]]) -> None:
    """Every request gets its tokens, or as many as the model's length leaves room for."""
    assert [len(tokens) for tokens in alone] == [min(TOKENS, CONTEXT - len(prompt)) for prompt in PROMPTS]
    assert len({tuple(tokens) for tokens in alone}) == len(alone)


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("budget", [9, 64, 512])
@pytest.mark.parametrize("blocks", [10, 256], ids=["preempting", "roomy"])
def test_arrangements(model: Path, alone: list[list[int]], depth: int, budget: int, blocks: int) -> None:
    """In one batch, chunked, preempted and at depth 2: the tokens of each request alone."""
    outputs, core = generate(model, PROMPTS, depth=depth, budget=budget, blocks=blocks)
    assert outputs == alone
    assert (core.statistics.preemptions > 0) == (blocks == 10)
