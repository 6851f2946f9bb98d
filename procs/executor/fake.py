"""An executor without a model, for tests and benchmarks of everything around it. It is never the product.

Its KV cache is honest: each position holds a hash of the token and of the position before, read back
through the block table, and the next token is a function of the hash at the last position. A wrong block,
position, token or order of steps so changes every later token. A step takes `step_s` seconds, as a device
would, whatever is in it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from ...common.config import Config
from ...ipc.messages import Hello, StepDone, StepPlan
from ...ipc.plan import LAST, Column, StepSlot, checked_slot
from ..process import Process, run
from .loop import serve_plans

VOCAB_SIZE = 49152
EOS_TOKEN_ID = 2
EOS_EVERY = 1000
"""One token of so many is EOS, on average."""

_FIRST_TOKEN = 17  # below are control tokens

_ROOT = np.uint64(0x9E3779B97F4A7C15)
_MIX = np.uint64(0xBF58476D1CE4E5B9)
_SHIFT = np.uint64(29)


def chain(previous: npt.NDArray[np.uint64], tokens: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The hash of a position, from that of the position before and the token (uint64 arrays alike)."""
    mixed = (previous ^ (tokens + _ROOT)) * _MIX
    return mixed ^ (mixed >> _SHIFT)


def next_token(hashes: npt.NDArray[np.uint64]) -> Column:
    """The token that follows a history with this hash, per entry."""
    spread = hashes >> np.uint64(32)
    tokens = _FIRST_TOKEN + (spread % np.uint64(VOCAB_SIZE - _FIRST_TOKEN)).astype(np.int32)
    tokens[spread % np.uint64(EOS_EVERY) == 0] = EOS_TOKEN_ID
    return tokens.astype(np.int32)


def continuation(prompt: list[int], count: int) -> list[int]:
    """The tokens that follow a prompt, by the plain definition: no cache, no batch. For tests."""
    state = np.array([_ROOT])
    for token in prompt:
        state = chain(state, np.array([token], np.uint64))
    tokens: list[int] = []
    for _ in range(count):
        tokens.append(int(next_token(state)[0]))
        state = chain(state, np.array([tokens[-1]], np.uint64))
    return tokens


class FakeRunner:
    """Runs step plans over slots; see the module's docstring."""

    def __init__(self, slots: tuple[StepSlot, ...], hello: Hello, max_rows: int, step_s: float = 0.0) -> None:
        self.hello = hello
        self._step_s = step_s
        self._slots = slots
        self._cache = np.zeros(hello.num_blocks * hello.block_size, np.uint64)
        width = -(-hello.max_model_len // hello.block_size)
        self._tables = np.full((max_rows, width), -1, np.int64)
        self._last = np.zeros(max_rows, np.int32)

    def run(self, plan: StepPlan) -> StepDone:
        """Run one step and leave the sampled tokens in its slot. Raises BadMessage for a plan that is none."""
        slot = checked_slot(plan, self._slots)
        end_s = time.monotonic() + self._step_s
        for new in plan.new_rows:
            self._tables[new.row] = -1
        changes = slice(0, plan.blocks)
        self._tables[slot.block_row[changes], slot.block_index[changes]] = slot.block_id[changes]
        rows, starts = slot.row[: plan.rows], slot.start[: plan.rows].astype(np.int64)
        decode = (slot.flags[: plan.rows] & LAST) != 0
        hashes = np.zeros(plan.rows, np.uint64)
        hashes[decode] = self._extend(rows[decode], starts[decode], self._last[rows[decode]])
        for index, tokens in self._chunks(slot, plan, decode):
            for offset, token in enumerate(tokens):
                at = slice(index, index + 1)
                hashes[at] = self._extend(rows[at], starts[at] + offset, np.array([token], np.int32))
        sampled = next_token(hashes)
        slot.sampled[: plan.rows] = sampled
        self._last[rows] = sampled
        time.sleep(max(0.0, end_s - time.monotonic()))
        return StepDone(plan.step, plan.slot, ())

    @staticmethod
    def _chunks(slot: StepSlot, plan: StepPlan, decode: npt.NDArray[np.bool_]) -> Iterator[tuple[int, list[int]]]:
        """(index of the row, its host tokens) of the rows that carry some."""
        at = 0
        for index in np.flatnonzero(~decode).tolist():
            count = int(slot.count[index])
            yield index, slot.tokens[at : at + count].tolist()
            at += count
        assert at == plan.tokens

    def _extend(self, rows: Column, positions: npt.NDArray[np.int64], tokens: Column) -> npt.NDArray[np.uint64]:
        """Write one position of each row; returns its hash."""
        before = self._cache[self._places(rows, np.maximum(positions - 1, 0))]
        hashes = chain(np.where(positions == 0, _ROOT, before), tokens.astype(np.uint64))
        self._cache[self._places(rows, positions)] = hashes
        return hashes

    def _places(self, rows: Column, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        size = self.hello.block_size
        blocks = self._tables[rows, positions // size]
        assert (blocks >= 0).all(), "a position without a block was planned"
        return blocks * size + positions % size


def fake_hello(config: Config) -> Hello:
    """What the fake executor can hold, from the configuration."""
    max_model_len = config.max_model_len or 8192
    num_blocks = config.num_blocks or config.max_num_seqs * -(-max_model_len // config.block_size)
    return Hello(num_blocks, config.block_size, max_model_len, VOCAB_SIZE, (EOS_TOKEN_ID,))


def serve(process: Process) -> None:
    """Serve no model."""
    config = process.config
    serve_plans(process, lambda slots: FakeRunner(slots, fake_hello(config), config.max_num_seqs, config.fake_step_s))


def main() -> None:
    run("executor", serve)


if __name__ == "__main__":
    main()
