"""The whole device path in Triton's interpreter, on CPU tensors: a tiny model's texts are those of the CPU path.

Everything that a card would run is run, but for true concurrency, and for graphs, which are functions here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fourstroke.common.config import Config
from fourstroke.ipc.messages import RowError, Sampling, StepDone, StepPlan
from fourstroke.ipc.plan import StepSlot
from fourstroke.procs.executor.attention.backend import Spans
from fourstroke.procs.executor.attention.reference import ReferenceAttention
from fourstroke.procs.executor.device.load import load_on
from fourstroke.procs.executor.kv_cache import KvCache
from fourstroke.procs.executor.models.llama import Llama
from fourstroke.procs.executor.weights.checkpoint import open_checkpoint
from fourstroke.procs.executor.weights.source import Weights

from ..unit.procs.executor.bad_plans import run_bad_plans
from ..unit.procs.executor.device.cpu_card import CpuCard
from ..unit.procs.executor.driver import GREEDY, Driver, Entry, executor_config
from ..unit.procs.executor.tiny import VOCAB, save_folder, tiny_weights

PROMPTS = [[7], [1, 2, 3], list(range(10, 27))]
LONG = PROMPTS[2]
RANDOM = Sampling(1.0, 20, 0.95, 0.0)
SEED = 1234
NAN = VOCAB - 1
"""A token whose embedding is NaN."""


class RunAtOnce:
    """A DeviceRunner whose steps are collected as soon as they are launched."""

    def __init__(self, config: Config, slots: Sequence[StepSlot], card: CpuCard) -> None:
        self.card = card
        self.inner = load_on(card, config, slots, lambda _: None)  # type: ignore[arg-type] # its graphs are no Recordings
        self.hello = self.inner.hello

    def run(self, plan: StepPlan) -> StepDone:
        self.inner.launch(plan)
        done = self.inner.collect()
        assert done is not None
        return done


def small(model: Path, **changes: object) -> Config:
    options = {"max_model_len": 32, "max_num_seqs": 3, "max_num_batched_tokens": 21, "num_blocks": 32}
    return executor_config(model, **(options | changes))


def on_device(config: Config, card: CpuCard) -> Driver:
    make: Any = lambda slots: RunAtOnce(config, slots, card)  # noqa: E731
    return Driver(config, make)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model of the executor's tests, one embedding of which is NaN."""
    torch.set_num_threads(1)
    weights = tiny_weights()
    weights["model.embed_tokens.weight"][NAN] = float("nan")
    return save_folder(tmp_path_factory.mktemp("models") / "tiny", weights)


@pytest.fixture(scope="module")
def flat(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with one layer: the interpreter is slow."""
    weights = {name: weight for name, weight in tiny_weights().items() if ".layers.1." not in name}
    return save_folder(tmp_path_factory.mktemp("models") / "flat", weights, num_hidden_layers=1)


@pytest.fixture(scope="module")
def device(model: Path) -> Driver:
    return on_device(small(model), CpuCard())


@pytest.fixture(scope="module")
def expected(model: Path) -> Driver:
    return Driver(small(model))


@contextmanager
def recorded(driver: Driver, row: int = 0) -> Iterator[list[torch.Tensor]]:
    """The hidden states of a row's tokens, step by step."""
    kept: list[torch.Tensor] = []
    program = driver.runner.inner._program
    run = type(program).run

    def record(inputs: Any, mix: Any) -> Any:
        output = run(program, inputs, mix)
        if row in inputs.rows:
            place = inputs.rows.tolist().index(row)
            first, count = int(inputs.first[place]), int(inputs.count[place])
            kept.append(output.hidden[first : first + count].clone())
        return output

    program.run = record
    yield kept
    del program.run


@pytest.mark.parametrize("sampling", [GREEDY, RANDOM], ids=["greedy", "random"])
def test_texts_are_those_of_the_cpu(device: Driver, expected: Driver, sampling: Sampling) -> None:
    """Chunked prompts, then decodes from graphs: token for token what the CPU path generates."""
    texts = device.generate(PROMPTS, 4, sampling, chunk=7, seed=SEED)
    assert texts == expected.generate(PROMPTS, 4, sampling, seed=SEED)
    assert len({tuple(text) for text in texts}) == len(PROMPTS)
    assert device.runner.card.replayed > 0


def test_tokens_stay_on_the_device(device: Driver, expected: Driver) -> None:
    """Rows that go on from a token which only the device has, beside a chunk of another prompt and in graphs."""
    texts = expected.generate(PROMPTS[1:], 4)
    device.reset()
    first, second = (device.add(prompt) for prompt in PROMPTS[1:])
    device.prefill([first])
    device.step([Entry(second, 10, samples=False), Entry(first, 1, last=True)])
    device.step([Entry(first, 1, last=True), Entry(second, 7)])
    device.decode([first, second], 1, last=True)
    assert first.generated == texts[0]
    assert second.generated == texts[1][:2]


def test_bad_plans(device: Driver) -> None:
    """None reaches the device."""
    run_bad_plans(device)


def test_the_next_step_is_launched_before_the_last_one_has_come_back(flat: Path) -> None:
    """Two steps are open at once; their results come back in order, each when its copy has arrived."""
    card = CpuCard(holding=True, warm=False)
    driver = on_device(small(flat), card)
    runner = driver.runner.inner
    requests = [driver.add(prompt) for prompt in PROMPTS[:2]]
    steps = [[Entry(request, request.prompt_tokens) for request in requests]]
    steps += [[Entry(request, 1, last=True) for request in requests]] * 2
    runner.launch(driver.plan(steps[0]))
    for number, entries in enumerate(steps):
        if number + 1 < len(steps):
            runner.launch(driver.plan(steps[number + 1]))
        assert runner.collect() is None
        card.release()
        done = runner.collect()
        assert done is not None
        driver.settle(entries, done)
    assert [request.generated for request in requests] == Driver(small(flat)).generate(PROMPTS[:2], 3)


def test_rows_that_the_host_samples(device: Driver, expected: Driver) -> None:
    """Biases and log-probabilities beside plain rows: the texts and the words of the CPU path; nobody else changes."""
    biased = Sampling(0.0, 0, 1.0, 0.0, biased=(3,), biases=(100.0,))
    scored = Sampling(1.0, 0, 1.0, 0.0, logprobs=2, prompt_logprobs=1)
    runs = []
    for driver in (device, expected):
        driver.reset()
        wishes = zip(PROMPTS, (RANDOM, biased, scored), strict=True)
        requests = [driver.add(prompt, wish, SEED) for prompt, wish in wishes]
        driver.prefill(requests)
        driver.decode(requests, 2, last=True)
        runs.append(requests)
    ours, theirs = runs
    assert [request.generated for request in ours] == [request.generated for request in theirs]
    assert ours[1].generated == [3, 3, 3]
    for words in ("words", "prompt_words"):
        got, wanted = (np.array(getattr(requests[2], words)) for requests in runs)
        assert got.shape == wanted.shape
        np.testing.assert_array_equal(got[:, 1:2], wanted[:, 1:2])
        np.testing.assert_allclose(got.view(np.float32)[:, 0], wanted.view(np.float32)[:, 0], atol=1e-3)


def test_a_row_with_nan_fails_alone(device: Driver, expected: Driver) -> None:
    """NaN is an error of its row, in chunks and graphs; its mates and the heirs of its blocks get their own texts."""
    texts = expected.generate(PROMPTS[:2], 2)
    device.reset()
    device.errors.clear()
    mates, sick = [device.add(prompt) for prompt in PROMPTS[:2]], device.add([1, NAN, 2])
    device.prefill([mates[0], sick, mates[1]])
    assert device.errors == [RowError(1, "the logits are not finite")]
    device.decode([sick, *mates], 1, last=True)
    assert device.errors[1:] == [RowError(0, "the logits are not finite")]
    assert [mate.generated for mate in mates] == texts
    blocks = sick.blocks
    device.reset()
    device.free_blocks += blocks
    heir = device.add(PROMPTS[1])
    device.prefill([heir])
    device.decode([heir], 1)
    assert heir.blocks == blocks
    assert heir.generated == texts[1]


def test_unknown_tokens_fail_their_row(device: Driver, expected: Driver) -> None:
    """An id that no embedding belongs to is the row's error, and its mate's text is its own."""
    device.reset()
    device.errors.clear()
    good, high = device.add(PROMPTS[1]), device.add([1, VOCAB, 2])
    device.step([Entry(high, 3), Entry(good, 3)])
    assert device.errors == [RowError(0, f"token {VOCAB} is outside the vocabulary of {VOCAB}")]
    assert good.generated == expected.generate([PROMPTS[1]], 1)[0]


def test_hidden_states_are_the_reference(model: Path, device: Driver) -> None:
    """Chunk by chunk, and as a decode, those of torch's operators with textbook attention, within 1e-3."""
    checkpoint = open_checkpoint(model)
    length = len(LONG)
    with torch.inference_mode():
        reference = Llama(checkpoint.config, Weights(checkpoint, torch.float32, lambda _: None), 32, 1)
        cache = KvCache(checkpoint.config, 8, 16, torch.float32)
        spans = Spans(*(np.array([n]) for n in (0, length, length)), np.array([[3, 5]], np.int32), 16)
        places = torch.arange(length)
        slots = torch.tensor([3, 5])[places // 16] * 16 + places % 16
        exact = reference.forward(torch.tensor(LONG), places, slots, cache, ReferenceAttention(spans, cache))
    device.reset()
    request = device.add(LONG)
    with recorded(device) as hidden:
        for count in (10, 1, 6):
            device.step([Entry(request, count, samples=request.computed + count == length)])
    torch.testing.assert_close(torch.cat(hidden), exact, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("options", [{"quantization": "fp8"}, {"kv_cache_dtype": "fp8"}], ids=str)
def test_eight_bits_stay_near(flat: Path, options: dict[str, str]) -> None:
    """With 8-bit weights, or with an 8-bit cache, hidden states are those of float32 to their precision."""
    states = []
    for changes in ({}, options):
        driver = on_device(small(flat, **changes), CpuCard(warm=False))
        request = driver.add(LONG)
        with recorded(driver) as hidden:
            driver.step([Entry(request, 9, samples=False)])
            driver.step([Entry(request, 8)])
        states.append(torch.cat(hidden))
    exact, rounded = states
    assert 1e-3 < (exact - rounded).norm() / exact.norm() < 0.1


def test_batch_invariance(flat: Path) -> None:
    """With --batch-invariant a row's hidden states are the same bits whole, in chunks and beside others."""
    driver = on_device(small(flat, batch_invariant=True), CpuCard(warm=False))
    runs = []
    for counts in ((17,), (5, 1, 7, 1, 1, 2)):
        driver.reset()
        request, other = driver.add(LONG), driver.add(LONG)
        with recorded(driver) as hidden:
            for count in counts:
                mates = [] if count == 17 else [Entry(other, 2, samples=False)]
                driver.step([*mates, Entry(request, count, samples=request.computed + count == 17)])
        runs.append(torch.cat(hidden))
    assert torch.equal(*runs)
