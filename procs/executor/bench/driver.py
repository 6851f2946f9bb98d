"""Step plans for rows that prefill and then decode, as the scheduler would write them, from plain loops.

Knows the runner as the executor's loop knows it: `hello`, and `run(plan)`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ....common.config import Config
from ....common.errors import ConfigError
from ....ipc.messages import NewRow, Sampling, StepPlan
from ....ipc.plan import LAST, SAMPLES, StepShape, StepSlot, slots_for_depth, step_slots
from ..device.selection import choose_backend, torch_build
from ..runner import load_runner

_GREEDY = Sampling(0.0, 0, 1.0, 0.0)
_SCORING = Sampling(0.0, 0, 1.0, 0.0, prompt_logprobs=1)
_IDS_BELOW = 10_000
"""Random prompts are of ids that are text in most vocabularies."""

Tokens = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Chunk:
    """What a row does in a step: `tokens` are the next ones of its prompt, None stands for the token it sampled last.

    `samples`: it samples a token after them.
    """

    row: int
    start: int
    tokens: np.ndarray | None
    samples: bool

    @property
    def count(self) -> int:
        return 1 if self.tokens is None else len(self.tokens)


class Driver:
    """A loaded runner. Row r owns an equal share of the blocks, which it fills from the first on.

    Raises ConfigError if `rows` rows of `tokens` tokens do not fit, or if it would not run on the CPU.
    """

    def __init__(self, config: Config, rows: int, tokens: int) -> None:
        if choose_backend(config, torch_build()) != "cpu":
            raise ConfigError("the model by itself is measured on the CPU only: say --backend cpu")
        shape = StepShape(config.max_num_seqs, config.max_num_batched_tokens, config.num_speculative_tokens)
        count = slots_for_depth(config.pipeline_depth)
        self._slots = step_slots(bytearray(shape.memory_bytes(count)), shape, count)
        self._runner = load_runner(config, self._slots, lambda _: None)
        self._budget = config.max_num_batched_tokens
        hello = self._runner.hello
        self._block_size = hello.block_size
        self._blocks_of_row = hello.num_blocks // rows
        self._vocab_size = min(_IDS_BELOW, hello.vocab_size)
        self._random = np.random.default_rng(0)
        self._step = 0
        if rows > config.max_num_seqs or rows > config.max_num_batched_tokens:
            raise ConfigError(f"{rows} rows are more than --max-num-seqs or --max-num-batched-tokens allow")
        if tokens > min(hello.max_model_len, self._blocks_of_row * self._block_size):
            raise ConfigError(f"{rows} rows of {tokens} tokens do not fit: see --num-blocks and --max-model-len")

    def prefill(self, rows: int, tokens: int) -> None:
        """Compute a random prompt of so many tokens in each of the first rows, and sample a token after each."""
        prompts = self._random.integers(self._vocab_size // 2, self._vocab_size, (rows, tokens), np.int32)
        fresh = tuple(NewRow(row, row, _GREEDY) for row in range(rows))
        chunks: list[Chunk] = []
        room = self._budget
        for row, prompt in enumerate(prompts):
            start = 0
            while start < tokens:
                part = prompt[start : start + room]
                chunks.append(Chunk(row, start, part, start + len(part) == tokens))
                start, room = start + len(part), room - len(part)
                if not room:
                    self._run(chunks, fresh)
                    chunks, fresh, room = [], (), self._budget
        if chunks:
            self._run(chunks, fresh)

    def decode(self, rows: int, position: int) -> None:
        """One step of each row: its last token stands at `position`, and it samples the next."""
        self._run([Chunk(row, position, None, True) for row in range(rows)], ())

    def score(self, prompt: Tokens) -> tuple[npt.NDArray[np.float32], Tokens]:
        """Of a prompt's tokens from the second on their log-probabilities, and the likeliest ones in their place."""
        words = self._begin(prompt, _SCORING).prompt_logprobs[: len(prompt) - 1]
        return words[:, 0].view(np.float32).copy(), words[:, 1].copy()

    def generate(self, prompt: Tokens, tokens: int) -> Tokens:
        """The next tokens after a prompt, greedily and without an end."""
        said = [int(self._begin(prompt, _GREEDY).sampled[0, 0])]
        while len(said) < tokens:
            chunk = Chunk(0, len(prompt) + len(said) - 1, None, True)
            said.append(int(self._run([chunk], ()).sampled[0, 0]))
        return np.array(said, np.int32)

    def _begin(self, prompt: Tokens, sampling: Sampling) -> StepSlot:
        """A whole prompt in one step, alone. Raises ConfigError if it is longer than a step."""
        if len(prompt) > self._budget:
            raise ConfigError(f"a text of {len(prompt)} tokens does not fit into a step: see --max-num-batched-tokens")
        return self._run([Chunk(0, 0, prompt, True)], (NewRow(0, 0, sampling),))

    def _run(self, chunks: Sequence[Chunk], fresh: tuple[NewRow, ...]) -> StepSlot:
        """The slot with the results, which the next steps write over."""
        done = self._runner.run(self._plan(chunks, fresh))
        assert not done.errors, done.errors
        return self._slots[done.slot]

    def _plan(self, chunks: Sequence[Chunk], fresh: tuple[NewRow, ...]) -> StepPlan:
        index = self._step % len(self._slots)
        slot, places = self._slots[index], len(chunks)
        slot.row[:places] = [chunk.row for chunk in chunks]
        slot.start[:places] = [chunk.start for chunk in chunks]
        slot.count[:places] = [chunk.count for chunk in chunks]
        slot.flags[:places] = [SAMPLES * chunk.samples | LAST * (chunk.tokens is None) for chunk in chunks]
        slot.drafts[:places] = slot.delta[:places] = 0
        slot.next[:places] = -1
        given = [chunk.tokens for chunk in chunks if chunk.tokens is not None]
        tokens = np.concatenate(given) if given else np.empty(0, np.int32)
        slot.tokens[: len(tokens)] = tokens
        changes = [(chunk.row, block) for chunk in chunks for block in self._begun(chunk)]
        for place, (row, block) in enumerate(changes):
            slot.block_row[place], slot.block_index[place] = row, block
            slot.block_id[place] = row * self._blocks_of_row + block
        self._step += 1
        return StepPlan(self._step, index, places, len(tokens), len(changes), fresh)

    def _begun(self, chunk: Chunk) -> range:
        """The blocks of its row that a chunk begins."""
        size = self._block_size
        return range(-(-chunk.start // size), -(-(chunk.start + chunk.count) // size))
