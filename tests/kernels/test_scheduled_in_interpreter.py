"""The scheduler's core with the device path in the interpreter: texts do not depend on the arrangement.

Results come back as late as they may: a step's are read when the scheduler can plan no more without them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from fourstroke.ipc.block_hash import chain
from fourstroke.ipc.messages import CacheKeys, Limits, Sampling, Submit
from fourstroke.ipc.plan import StepShape, slots_for_depth, step_slots
from fourstroke.procs.executor.device.load import load_on
from fourstroke.procs.scheduler.arrivals import requests_of
from fourstroke.procs.scheduler.core import Scheduler
from fourstroke.procs.scheduler.policy import Policy

from ..unit.procs.executor.device.cpu_card import CpuCard
from ..unit.procs.executor.driver import Driver, executor_config
from ..unit.procs.executor.tiny import save_folder, tiny_weights

BLOCK, ROWS, BUDGET, CONTEXT, TOKENS, DEPTH = 8, 3, 10, 32, 4, 2
PROMPTS = [[5 + size] * size for size in (1, BLOCK, 2 * BLOCK + 3)]
SAMPLING = [Sampling(0.0, 0, 1.0, 0.0), Sampling(1.0, 0, 1.0, 0.0), Sampling(1.0, 9, 0.9, 0.05)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    weights = {name: weight for name, weight in tiny_weights().items() if ".layers.1." not in name}
    return save_folder(tmp_path_factory.mktemp("models") / "flat", weights, num_hidden_layers=1)


def scheduled(model: Path, prompts: Sequence[list[int]], blocks: int) -> tuple[list[list[int]], Scheduler]:
    """What is generated after each prompt; and the scheduler, for its counts."""
    options = {"block_size": BLOCK, "num_blocks": blocks, "max_num_seqs": ROWS, "max_num_batched_tokens": BUDGET}
    config = executor_config(model, max_model_len=CONTEXT, pipeline_depth=DEPTH, **options)
    shape, count = StepShape(ROWS, BUDGET), slots_for_depth(DEPTH)
    slots = step_slots(bytearray(shape.memory_bytes(count)), shape, count)
    card = CpuCard(holding=True, warm=False)
    runner = load_on(card, config, slots, lambda _: None)
    policy = Policy(
        max_num_seqs=ROWS, max_num_batched_tokens=BUDGET, pipeline_depth=DEPTH, headroom_lookahead=0, prefix_cache=True
    )
    core = Scheduler(policy, runner.hello, slots)
    outputs: list[list[int]] = [[] for _ in prompts]
    for rid, prompt in enumerate(prompts):
        tokens = np.array(prompt, np.int32)
        digests, limits = chain(tokens, BLOCK, CacheKeys(), ()), Limits(TOKENS, 0, True, ())
        sampling = SAMPLING[rid % len(SAMPLING)]
        submit = Submit((rid,), (7,), 0, len(prompt), digests, CacheKeys(), sampling, limits, 0, 0.0, b"")
        for request in requests_of(submit, tokens, 0.0, block_size=BLOCK, prefix_cache=True, stateful=False):
            core.submit(request, 0.0)
    open_steps = 0
    while core.alive:
        step = core.plan(0.0)
        if step is not None:
            runner.launch(step.plan)
            open_steps += 1
        if open_steps and (step is None or open_steps == DEPTH):
            assert runner.collect() is None
            card.release()
            done = runner.collect()
            assert done is not None
            core.settle(done.errors, 0.0)
            open_steps -= 1
        for emission in core.take_emissions():
            at = 0
            for rid, number in zip(emission.new.rids.tolist(), emission.new.counts.tolist(), strict=True):
                outputs[rid] += emission.new.tokens[at : at + number].tolist()
                at += number
        core.check()
    return outputs, core


@pytest.mark.parametrize("blocks", [32, 4], ids=["roomy", "preempting"])
def test_arrangements(model: Path, blocks: int) -> None:
    """In chunks, beside each other, from the prefix cache, preempted, two steps deep: the texts of the CPU path."""
    driver = Driver(executor_config(model, max_model_len=CONTEXT, block_size=BLOCK))
    alone = [
        driver.generate([prompt], TOKENS, sampling, seed=7)[0]
        for prompt, sampling in zip(PROMPTS, SAMPLING, strict=True)
    ]
    outputs, core = scheduled(model, PROMPTS * 2, blocks)
    assert outputs == alone * 2
    assert core.cache_stats.total_cached_tokens > 0 or blocks == 4
    assert (core.statistics.preemptions > 0) == (blocks == 4)
