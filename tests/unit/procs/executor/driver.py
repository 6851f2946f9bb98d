"""Drives a Runner through step slots as a scheduler would, as plainly as can be: for tests of the executor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from fourstroke.common.config import Config
from fourstroke.ipc.messages import NewRow, RowError, Sampling, StepDone, StepPlan
from fourstroke.ipc.plan import LAST, SAMPLES, StepShape, StepSlot, slots_for_depth, step_slots
from fourstroke.procs.executor.batch import Batch
from fourstroke.procs.executor.runner import Runner, load_runner

GREEDY = Sampling(0.0, 0, 1.0, 0.0, 0)


def executor_config(model: Path, **changes: object) -> Config:
    """A small float32 executor on one thread, which tests that share the machine need."""
    plain = {
        "model": str(model),
        "served_model_names": ("test",),
        "dtype": "float32",
        "threads": 1,
        "num_blocks": 256,
        "max_num_seqs": 32,
        "max_num_batched_tokens": 512,
        "max_model_len": 128,
    }
    return Config(**(plain | changes))  # type: ignore[arg-type]


@dataclass
class Request:
    """A prompt in its row, with all that has been sampled for it so far."""

    row: int
    tokens: list[int]
    sampling: Sampling
    prompt_tokens: int
    computed: int = 0
    blocks: int = 0
    planned_samples: int = 0

    @property
    def generated(self) -> list[int]:
        return self.tokens[self.prompt_tokens :]


@dataclass(frozen=True)
class Entry:
    """What one row does in a step. With `last` the token is left to the executor."""

    request: Request
    count: int
    samples: bool = True
    last: bool = False


@dataclass
class Driver:
    """A runner with slots of its own; blocks are handed out scattered, and never taken back."""

    config: Config
    runner: Runner = field(init=False)
    slots: tuple[StepSlot, ...] = field(init=False)
    errors: list[RowError] = field(default_factory=list)

    def __post_init__(self) -> None:
        shape = StepShape(self.config.max_num_seqs, self.config.max_num_batched_tokens)
        count = slots_for_depth(self.config.pipeline_depth)
        self.slots = step_slots(bytearray(shape.memory_bytes(count)), shape, count)
        self.runner = load_runner(self.config, self.slots, lambda _: None)
        self.reset()
        self._step = 0

    def reset(self) -> None:
        """Begin with all rows and blocks free; what earlier requests left in the cache stays there."""
        order = torch.randperm(self.runner.hello.num_blocks, generator=torch.Generator().manual_seed(7))
        self._free_blocks = order.tolist()
        self._fresh: list[Request] = []
        self._rows = 0

    def add(self, prompt: Sequence[int], sampling: Sampling = GREEDY) -> Request:
        """A request in the next free row."""
        request = Request(self._rows, list(prompt), sampling, len(prompt))
        self._rows += 1
        self._fresh.append(request)
        return request

    def plan(self, entries: Sequence[Entry]) -> StepPlan:
        """Fill a slot with a step of these rows, each of which continues where it stopped."""
        slot = self.slots[self._step % len(self.slots)]
        tokens: list[int] = []
        changes: list[tuple[int, int, int]] = []
        for index, entry in enumerate(entries):
            request, end = entry.request, entry.request.computed + entry.count
            slot.row[index], slot.start[index], slot.count[index] = request.row, request.computed, entry.count
            slot.flags[index] = SAMPLES * entry.samples | LAST * entry.last
            if not entry.last:
                tokens += request.tokens[request.computed : end]
            while request.blocks * self.config.block_size < end:
                changes.append((request.row, request.blocks, self._free_blocks.pop()))
                request.blocks += 1
            request.computed = end
        slot.tokens[: len(tokens)] = tokens
        for place, (row, block_index, block) in enumerate(changes):
            slot.block_row[place], slot.block_index[place], slot.block_id[place] = row, block_index, block
        new_rows = tuple(NewRow(request.row, request.sampling) for request in self._fresh)
        self._fresh.clear()
        self._step += 1
        return StepPlan(self._step, slots_index(self.slots, slot), len(entries), len(tokens), len(changes), new_rows)

    def settle(self, entries: Sequence[Entry], done: StepDone) -> None:
        """Take the sampled tokens of a step."""
        self.errors += done.errors
        for index, entry in enumerate(entries):
            if entry.samples:
                entry.request.tokens.append(int(self.slots[done.slot].sampled[index]))

    def step(self, entries: Sequence[Entry]) -> StepDone:
        """Plan, run and settle one step."""
        done = self.runner.run(self.plan(entries))
        self.settle(entries, done)
        return done

    def prefill(self, requests: Sequence[Request], chunk: int = 1 << 20) -> None:
        """Compute all prompts side by side, in chunks, and sample the first token of each."""
        while pending := [request for request in requests if request.computed < request.prompt_tokens]:
            counts = [min(chunk, request.prompt_tokens - request.computed) for request in pending]
            self.step(
                [
                    Entry(request, count, request.computed + count == request.prompt_tokens)
                    for request, count in zip(pending, counts, strict=True)
                ]
            )

    def decode(self, requests: Sequence[Request], steps: int, last: bool = False) -> None:
        """Some more tokens of each request, with tokens given by the host or left to the executor."""
        for _ in range(steps):
            self.step([Entry(request, 1, last=last) for request in requests])

    def generate(
        self, prompts: Sequence[Sequence[int]], tokens: int, sampling: Sampling = GREEDY, chunk: int = 1 << 20
    ) -> list[list[int]]:
        """The first `tokens` tokens after each prompt, all in one batch."""
        self.reset()
        requests = [self.add(prompt, sampling) for prompt in prompts]
        self.prefill(requests, chunk)
        self.decode(requests, tokens - 1)
        return [request.generated for request in requests]


def slots_index(slots: Sequence[StepSlot], slot: StepSlot) -> int:
    """Which slot this is; slots compare by their arrays, so not by `index`."""
    return next(place for place, other in enumerate(slots) if other is slot)


def record_logits(runner: Runner) -> list[torch.Tensor]:
    """From now on keep the logits of each step's sampling rows, in plan order."""
    kept: list[torch.Tensor] = []
    sample = runner._sample

    def record(batch: Batch, hidden: torch.Tensor, slot: StepSlot) -> dict[int, str]:
        logits = runner._model.logits(hidden[torch.from_numpy(batch.last)])
        kept.append(logits[torch.from_numpy(np.argsort(batch.order[batch.sampling]))])
        return sample(batch, hidden, slot)

    runner._sample = record  # type: ignore[method-assign]
    return kept
