"""The scheduler's core with the real runner and a tiny random model in float32: texts do not depend on the arrangement.

The ring's other tests have an executor of invented tokens, whose cache shows any wrong block or position. Here it is
real attention over a real cache, with lengths at the edges of blocks and of the model.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from fourstroke.ipc.block_hash import chain
from fourstroke.ipc.messages import CacheKeys, Limits, Sampling, Submit
from fourstroke.ipc.plan import StepShape, slots_for_depth, step_slots
from fourstroke.procs.executor.runner import load_runner
from fourstroke.procs.scheduler.arrivals import requests_of
from fourstroke.procs.scheduler.core import Scheduler
from fourstroke.procs.scheduler.policy import Policy

from ..unit.procs.executor.driver import executor_config
from ..unit.procs.executor.tiny import CONTEXT, save_folder, tiny_weights

BLOCK = 8
PROMPTS = [[5 + n] * n for n in (1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 3 * BLOCK - 1, CONTEXT - 2, CONTEXT - 1)]
TOKENS = 20


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return save_folder(tmp_path_factory.mktemp("models") / "tiny", tiny_weights())


def half_sampled(rid: int) -> Sampling:
    """Every other request is greedy."""
    return Sampling(float(rid % 2), 0, 1.0, 0.0)


def generate(
    model: Path,
    prompts: Sequence[list[int]],
    *,
    rows: int = 8,
    budget: int = 512,
    depth: int = 2,
    blocks: int = 256,
    cache: bool = False,
    drafts: int = 0,
    rule: Callable[[int], Sampling] = half_sampled,
    ignore_eos: bool = True,
) -> tuple[list[list[int]], Scheduler]:
    """What is generated after each prompt, by the rule for its number; and the scheduler, for its counts."""
    config = executor_config(
        model,
        block_size=BLOCK,
        num_blocks=blocks,
        max_num_seqs=rows,
        max_num_batched_tokens=budget,
        max_model_len=CONTEXT,
        pipeline_depth=depth,
        num_speculative_tokens=drafts,
    )
    shape, count = StepShape(rows, budget, drafts), slots_for_depth(depth)
    slots = step_slots(bytearray(shape.memory_bytes(count)), shape, count)
    runner = load_runner(config, slots, lambda _: None)
    policy = Policy(
        max_num_seqs=rows,
        max_num_batched_tokens=budget,
        pipeline_depth=depth,
        headroom_lookahead=0,
        prefix_cache=cache,
        drafts=drafts,
    )
    core = Scheduler(policy, runner.hello, slots)
    outputs: dict[int, list[int]] = {rid: [] for rid in range(len(prompts))}
    for rid, prompt in enumerate(prompts):
        tokens = np.array(prompt, np.int32)
        digests = chain(tokens, BLOCK, CacheKeys(), ()) if cache else b""
        sampling, limits = rule(rid), Limits(TOKENS, 0, ignore_eos, ())
        submit = Submit((rid,), (rid,), 0, len(prompt), digests, CacheKeys(), sampling, limits, 0, 0.0, b"")
        for request in requests_of(submit, tokens, 0.0, block_size=BLOCK, prefix_cache=cache, stateful=False):
            core.submit(request, 0.0)
    pending = deque()
    while core.alive:
        step = core.plan(0.0)
        if step is not None:
            pending.append(runner.run(step.plan))
        if pending and (step is None or len(pending) == depth):
            done = pending.popleft()
            core.settle(done.errors, 0.0)
        for emission in core.take_emissions():
            at = 0
            for rid, number in zip(emission.new.rids.tolist(), emission.new.counts.tolist(), strict=True):
                outputs[rid] += emission.new.tokens[at : at + number].tolist()
                at += number
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


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("blocks", [10, 256], ids=["preempting", "roomy"])
@pytest.mark.parametrize("drafts", [0, 1, 3])
def test_cache_and_drafts(model: Path, alone: list[list[int]], depth: int, blocks: int, drafts: int) -> None:
    """With a prefix cache that was filled before, and with drafts from the request's own text: the same tokens."""
    outputs, core = generate(model, PROMPTS * 2, budget=64, depth=depth, blocks=blocks, cache=True, drafts=drafts)
    count = len(PROMPTS)
    assert outputs[:count] == alone
    assert outputs[count::2] == alone[::2]  # greedy; the others have seeds of their own
    assert (core.cache_stats.total_cached_tokens > 0) or blocks == 10
    assert bool(core.spec_stats.total_accepted) == bool(drafts)
