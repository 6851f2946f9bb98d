"""Drives a runner through step slots as a scheduler would, as plainly as can be: for tests of the executor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fourstroke.common.config import Config
from fourstroke.ipc.messages import Image, MediaChunk, NewRow, RowError, Sampling, StepDone, StepPlan
from fourstroke.ipc.plan import LAST, SAMPLES, StepShape, StepSlot, slots_for_depth, step_slots
from fourstroke.procs.executor.batch import Batch
from fourstroke.procs.executor.fake import FakeRunner
from fourstroke.procs.executor.runner import Runner, load_runner
from fourstroke.procs.executor.verify import Sampled

GREEDY = Sampling(0.0, 0, 1.0, 0.0)


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
    """A prompt in its row, with all that has been sampled for it so far.

    `computed` counts planned positions, the most that they can be. `words` and `prompt_words` are those of the
    log-probabilities of its generated tokens and of its prompt's tokens from the second on.
    """

    row: int
    tokens: list[int]
    sampling: Sampling
    prompt_tokens: int
    seed: int = 0
    state_slot: int = -1
    masked_until: int = 0
    masked: tuple[int, ...] = ()
    computed: int = 0
    blocks: list[int] = field(default_factory=list)
    drafted: int = 0
    words: list[np.ndarray] = field(default_factory=list)
    prompt_words: list[np.ndarray] = field(default_factory=list)

    @property
    def generated(self) -> list[int]:
        return self.tokens[self.prompt_tokens :]


@dataclass(frozen=True)
class Entry:
    """What one row does in a step. With `last` the tokens are left to the executor; `drafts` stand after the known."""

    request: Request
    count: int
    samples: bool = True
    last: bool = False
    drafts: tuple[int, ...] = ()
    images: tuple[Image, ...] = ()
    mrope: bytes = b""
    delta: int = 0

    @property
    def granted(self) -> int:
        """How many drafts the row may verify."""
        return self.count - 1 if self.last else len(self.drafts)


class Driver:
    """A runner with slots of its own; blocks are handed out scattered, and never taken back.

    The runner is that of the configuration's model, or what `make_runner` makes.
    """

    def __init__(self, config: Config, make_runner: Callable[[tuple[StepSlot, ...]], FakeRunner] | None = None) -> None:
        self.config = config
        self.most_drafts = config.num_speculative_tokens
        shape = StepShape(config.max_num_seqs, config.max_num_batched_tokens, self.most_drafts)
        count = slots_for_depth(config.pipeline_depth)
        self.slots = step_slots(bytearray(shape.memory_bytes(count)), shape, count)
        self.runner: Any = make_runner(self.slots) if make_runner else load_runner(config, self.slots, lambda _: None)
        self.errors: list[RowError] = []
        self._step = 0
        self.reset()

    def reset(self) -> None:
        """Begin with all rows and blocks free; what earlier requests left in the cache stays there."""
        order = torch.randperm(self.runner.hello.num_blocks, generator=torch.Generator().manual_seed(7))
        self.free_blocks: list[int] = order.tolist()
        self._fresh: list[Request] = []
        self._rows = 0

    def add(self, prompt: Sequence[int], sampling: Sampling = GREEDY, seed: int = 0, state_slot: int = -1) -> Request:
        """A request in the next free row."""
        request = Request(self._rows, list(prompt), sampling, len(prompt), seed, state_slot)
        self._rows += 1
        self._fresh.append(request)
        return request

    def plan(self, entries: Sequence[Entry], state_copies: Sequence[tuple[int, int]] = ()) -> StepPlan:
        """Fill a slot with a step of these rows, each of which continues where it stopped."""
        index = self._step % len(self.slots)
        slot = self.slots[index]
        tokens: list[int] = []
        changes: list[tuple[int, int, int]] = []
        for place, entry in enumerate(entries):
            request, end = entry.request, entry.request.computed + entry.count
            slot.row[place], slot.start[place], slot.count[place] = request.row, request.computed, entry.count
            slot.flags[place] = SAMPLES * entry.samples | LAST * entry.last
            slot.drafts[place], slot.delta[place] = entry.granted, entry.delta
            slot.next[place] = request.tokens[end] if end < request.prompt_tokens else -1
            if not entry.last:
                tokens += [*request.tokens[request.computed : end - len(entry.drafts)], *entry.drafts]
            while len(request.blocks) * self.config.block_size < end:
                request.blocks.append(self.free_blocks.pop())
                changes.append((request.row, len(request.blocks) - 1, request.blocks[-1]))
            request.computed = end
        slot.tokens[: len(tokens)] = tokens
        for place, (row, block_index, block) in enumerate(changes):
            slot.block_row[place], slot.block_index[place], slot.block_id[place] = row, block_index, block
        media = tuple(
            MediaChunk(place, entry.mrope, entry.images)
            for place, entry in enumerate(entries)
            if entry.mrope or entry.images
        )
        copies = np.array(state_copies, np.int32).tobytes()
        self._step += 1
        return StepPlan(
            self._step, index, len(entries), len(tokens), len(changes), self._take_fresh(), media, state_copies=copies
        )

    def _take_fresh(self) -> tuple[NewRow, ...]:
        rows = tuple(
            NewRow(
                request.row, request.seed, request.sampling, request.masked_until, request.masked, request.state_slot
            )
            for request in self._fresh
        )
        self._fresh.clear()
        return rows

    def settle(self, entries: Sequence[Entry], done: StepDone) -> None:
        """Take the results of a step."""
        self.errors += done.errors
        slot, at = self.slots[done.slot], 0
        for place, entry in enumerate(entries):
            request, produced = entry.request, int(slot.produced[place])
            assert (1 <= produced <= 1 + entry.granted) if entry.samples else produced == 0
            if entry.samples:
                request.tokens += slot.sampled[place, :produced].tolist()
                request.computed -= entry.granted - (produced - 1)
                request.drafted = int(slot.drafted[place])
                assert 0 <= request.drafted <= self.most_drafts
                request.words += words_of(slot.logprobs[place, :produced], request.sampling.logprobs)
            if not entry.last:
                given = slot.prompt_logprobs[at : at + entry.count - (slot.next[place] < 0)]
                request.prompt_words += words_of(given, request.sampling.prompt_logprobs)
                at += entry.count

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
        """Some more steps of each request, with a token given by the host, or all that may be left to the executor."""
        for _ in range(steps):
            self.step([Entry(request, 1 + last * self.most_drafts, last=last) for request in requests])

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        tokens: int,
        sampling: Sampling = GREEDY,
        chunk: int = 1 << 20,
        seed: int = 0,
    ) -> list[list[int]]:
        """The first `tokens` tokens after each prompt, all in one batch."""
        self.reset()
        requests = [self.add(prompt, sampling, seed) for prompt in prompts]
        self.prefill(requests, chunk)
        self.decode(requests, tokens - 1)
        return [request.generated for request in requests]


def words_of(words: np.ndarray, top: int) -> list[np.ndarray]:
    """Copies of the words of each token that a row with so many best tokens gets."""
    return [row[: 1 + 2 * top].copy() for row in words] if top >= 0 else []


def record_logits(runner: Runner) -> list[torch.Tensor]:
    """From now on keep the logits of each step's sampling rows, in plan order."""
    kept: list[torch.Tensor] = []
    sample = runner._head.sample

    def record(batch: Batch, hidden: torch.Tensor, slot: StepSlot) -> Sampled:
        if len(batch.draws.place):
            logits = runner._head._model.logits(hidden[torch.from_numpy(batch.draws.place)])
            kept.append(logits[torch.from_numpy(np.argsort(batch.order[batch.draws.owner]))])
        return sample(batch, hidden, slot)

    runner._head.sample = record  # type: ignore[method-assign]
    return kept
