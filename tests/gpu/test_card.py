"""The device path on a real card: the CPU path's texts, graphs that equal eager steps, 8-bit floats, results later."""

from __future__ import annotations

import select
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from fourstroke.common.config import Config
from fourstroke.ipc.messages import Sampling, StepDone, StepPlan
from fourstroke.ipc.plan import StepSlot
from fourstroke.procs.executor.device.precision import card_types

from ..unit.procs.executor.driver import GREEDY, Driver, Entry, executor_config

PROMPTS = [[7], [1, 2, 3], list(range(10, 100)), [50] * 16]
RANDOM = Sampling(1.0, 20, 0.95, 0.0)


class RunAtOnce:
    """A DeviceRunner on the first card whose steps are waited for."""

    def __init__(self, config: Config, slots: Sequence[StepSlot]) -> None:
        from fourstroke.procs.executor.device.load import load_device_runner  # here: imports Triton

        self.inner = load_device_runner(config, slots, lambda _: None, 0)
        self.hello = self.inner.hello

    def run(self, plan: StepPlan) -> StepDone:
        self.inner.launch(plan)
        return self.wait()

    def wait(self) -> StepDone:
        while (done := self.inner.collect()) is None:
            assert select.select([self.inner.ends], [], [], 60)[0], "a step has not ended in a minute"
        return done


def config(model: Path, **changes: object) -> Config:
    options = {"max_model_len": 256, "max_num_seqs": 8, "max_num_batched_tokens": 128, "num_blocks": 128}
    return executor_config(model, **(options | changes))


def on_card(config: Config) -> Driver:
    make: Any = lambda slots: RunAtOnce(config, slots)  # noqa: E731
    return Driver(config, make)


def logits_of(driver: Driver) -> torch.Tensor:
    """The logits of prompts' last tokens and of a decode, in float32 on the CPU."""
    head = driver.runner.inner._head if isinstance(driver.runner, RunAtOnce) else driver.runner._head
    kept: list[torch.Tensor] = []
    model, logits = head._model, head._model.logits

    def record(hidden: torch.Tensor) -> torch.Tensor:
        found = logits(hidden)
        kept.append(found.float().cpu())
        return found

    scored = Sampling(0.0, 0, 1.0, 0.0, logprobs=0)  # so that the head looks at the logits on a card, too
    model.logits = record
    driver.reset()
    requests = [driver.add(prompt, scored) for prompt in PROMPTS]
    driver.prefill(requests)
    model.logits = logits
    return kept[-1]


@pytest.mark.parametrize("sampling", [GREEDY, RANDOM], ids=["greedy", "random"])
@pytest.mark.parametrize("block_size", [16, 64])
def test_texts_are_those_of_the_cpu(model: Path, sampling: Sampling, block_size: int) -> None:
    """In float32, token for token, in chunks and from graphs."""
    options = {"block_size": block_size, "num_blocks": 64}
    expected = Driver(config(model, backend="cpu", **options)).generate(PROMPTS, 20, sampling, seed=3)
    assert on_card(config(model, **options)).generate(PROMPTS, 20, sampling, chunk=30, seed=3) == expected


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_logits_are_near_the_cpus(model: Path, dtype: str) -> None:
    """To the precision of the type."""
    exact = logits_of(Driver(config(model, backend="cpu")))
    found = logits_of(on_card(config(model, dtype=dtype)))
    assert (exact - found).norm() < {"float32": 1e-4}.get(dtype, 0.03) * exact.norm()


@pytest.mark.parametrize("options", [{"quantization": "fp8"}, {"kv_cache_dtype": "fp8"}], ids=str)
def test_eight_bits_stay_near(model: Path, options: dict[str, str]) -> None:
    """On a card that has 8-bit floats, logits with them are those in bfloat16 to their precision."""
    if card_types(torch.device("cuda", 0)).fp8 is None:
        pytest.skip("this card has no 8-bit floats")
    exact = logits_of(on_card(config(model, dtype="bfloat16")))
    rounded = logits_of(on_card(config(model, dtype="bfloat16", **options)))
    assert (exact - rounded).norm() < 0.3 * exact.norm()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_graphs_equal_eager_steps(model: Path, dtype: str) -> None:
    """A decode step of as many rows as a graph has is the same bits replayed and launched kernel by kernel."""
    driver = on_card(config(model, dtype=dtype))
    graphs, outputs = driver.runner.inner._graphs, []
    fit = graphs.fit
    for eager in (False, True):
        graphs.fit = (lambda rows: None) if eager else fit
        outputs.append(driver.generate(PROMPTS, 12, RANDOM, seed=9))
    assert outputs[0] == outputs[1]


def test_batch_invariance(model: Path) -> None:
    """With --batch-invariant a text in bfloat16 is the same alone, in a batch and in chunks."""
    driver = on_card(config(model, dtype="bfloat16", batch_invariant=True))
    together = driver.generate(PROMPTS, 20, RANDOM, seed=5)
    assert driver.generate(PROMPTS, 20, RANDOM, chunk=7, seed=5) == together
    assert [driver.generate([prompt], 20, RANDOM, seed=5)[0] for prompt in PROMPTS] == together


def test_the_next_step_is_launched_before_the_last_one_has_come_back(model: Path) -> None:
    """Two steps deep all the way: the texts of one step at a time."""
    driver = on_card(config(model))
    expected = driver.generate(PROMPTS, 20)
    driver.reset()
    requests = [driver.add(prompt) for prompt in PROMPTS]
    steps = [[Entry(request, request.prompt_tokens) for request in requests]]
    steps += [[Entry(request, 1, last=True) for request in requests]] * 19
    runner = driver.runner
    runner.inner.launch(driver.plan(steps[0]))
    for number, entries in enumerate(steps):
        if number + 1 < len(steps):
            runner.inner.launch(driver.plan(steps[number + 1]))
        driver.settle(entries, runner.wait())
    assert [request.generated for request in requests] == expected


def test_the_cache_takes_what_is_left(model: Path) -> None:
    """Without --num-blocks the cache is sized by what was measured, and the server runs with it."""
    driver = on_card(config(model, num_blocks=None, max_num_seqs=4))
    assert driver.runner.hello.num_blocks == 4 * 256 // 16
    assert len(driver.generate(PROMPTS, 4)) == len(PROMPTS)
