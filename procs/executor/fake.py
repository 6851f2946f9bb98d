"""An executor without a model, for tests and benchmarks of everything around it. It is never the product.

Its KV cache is honest (fake_memory.py): each position holds a hash of the token and of the position before, read back
through the block table, and the next token is a function of the hash at the last position (fake_text.py). A wrong
block, position, token, image or order of steps so changes every later token. Drafts are invented at random, right
or wrong, and verified. A step takes `step_s` seconds, as a device would, whatever is in it.
"""

from __future__ import annotations

import time

import numpy as np

from ...common.config import Config
from ...ipc.messages import NO_LOGPROBS, Hello, RowError, StepDone, StepPlan
from ...ipc.plan import StepSlot
from ..process import Process, run
from .cursors import Cursors
from .fake_memory import FakeMemory
from .fake_text import (
    EOS_TOKEN_ID,
    VOCAB_SIZE,
    Hashes,
    Indices,
    chain,
    continuation,
    logprob_words,
    marks,
    next_token,
    other_token,
    text_logprobs,
)
from .loop import AtOnce, serve_plans
from .plan_check import checked_plan
from .verify import Sampled, verify, write_results
from .work import Draws, Work, draws_of, ragged, work_of

__all__ = ["EOS_TOKEN_ID", "VOCAB_SIZE", "FakeRunner", "continuation", "fake_hello", "text_logprobs"]


class FakeRunner:
    """Runs step plans over slots; see the module's docstring."""

    def __init__(
        self,
        slots: tuple[StepSlot, ...],
        hello: Hello,
        max_rows: int,
        step_s: float = 0.0,
        drafts: int = 0,
        accept: float = 0.7,
        seed: int = 0,
        poison: frozenset[int] = frozenset(),
    ) -> None:
        """After each row that samples, 0..`drafts` drafts are ready, each right with probability `accept`.

        A row with a token of `poison` in a plan fails.
        """
        self.hello = hello
        self._slots = slots
        self._step_s = step_s
        self._memory = FakeMemory(hello, max_rows)
        self._cursors = Cursors(max_rows, drafts)
        self._tops = np.full((2, max_rows), NO_LOGPROBS, np.int64)
        self._accept = accept
        self._random = np.random.default_rng(seed)
        self._poison = np.array(sorted(poison), np.int64)

    def run(self, plan: StepPlan) -> StepDone:
        """Run one step and leave its results in its slot. Raises BadMessage for a plan that is none."""
        slot = checked_plan(plan, self._slots, self.hello, self._cursors)
        end_s = time.monotonic() + self._step_s
        work = self._take(plan, slot)
        hashes = self._compute(work, self._marks(plan, slot, work))
        draws = draws_of(work.first, work.count, work.drafts, work.samples)
        sampled = Sampled(next_token(hashes[draws.place]).astype(np.int64), np.zeros(len(draws.place), np.bool_))
        self._score(slot, work, draws, hashes, sampled.tokens)
        self._advance(plan, slot, work, draws, hashes, sampled)
        poisoned = (work.given >= 0) & (work.tokens == self._poison[:, None]).any(axis=0)
        errors = np.unique(ragged(work.count)[0][poisoned])
        if self._step_s:  # a sleep of nothing can take milliseconds
            time.sleep(max(0.0, end_s - time.monotonic()))
        return StepDone(plan.step, plan.slot, tuple(RowError(index, "a poisoned token") for index in errors.tolist()))

    def _take(self, plan: StepPlan, slot: StepSlot) -> Work:
        """Put a plan's changes into the rows; the work that it asks for."""
        self._memory.take(plan, slot)
        for new in plan.new_rows:
            self._cursors.reset(new.row)
            self._tops[:, new.row] = new.sampling.logprobs, new.sampling.prompt_logprobs
        return work_of(plan, slot, self._cursors)

    def _marks(self, plan: StepPlan, slot: StepSlot, work: Work) -> Hashes:
        """The mark of each token of a step."""
        owner, within = ragged(work.count)
        places = work.start[owner] + within
        found = marks(places, places + slot.delta[owner])
        for chunk in plan.media:
            self._memory.see(int(work.row[chunk.index]), chunk.images)
            part = slice(work.first[chunk.index], work.first[chunk.index] + work.count[chunk.index])
            positions = places[part] + slot.delta[chunk.index]
            if chunk.mrope:
                positions = np.frombuffer(chunk.mrope, np.int32).reshape(3, len(positions)).astype(np.int64)
            found[part] = marks(places[part], positions, chunk.images)
        return found

    def _compute(self, work: Work, mark: Hashes) -> Hashes:
        """The hash of each token of a step, written to the cache."""
        owner, within = ragged(work.count)
        grid = np.zeros((int(work.count.max()), len(work.row)), np.uint64)
        grid[within, owner] = work.tokens.astype(np.uint64) + mark
        before = self._memory.before(work.row, work.start)
        for turn in grid:
            before = turn[:] = chain(before, turn)
        hashes = grid[within, owner]
        self._memory.write(work.row[owner], work.start[owner] + within, hashes)
        return hashes

    def _score(self, slot: StepSlot, work: Work, draws: Draws, hashes: Hashes, tokens: Indices) -> None:
        """Write the log-probabilities that rows want."""
        tops, prompt_tops = self._tops[:, work.row]
        for top in np.unique(tops[tops != NO_LOGPROBS]):
            drawn = np.flatnonzero(tops[draws.owner] == top)
            words = logprob_words(hashes[draws.place[drawn]], tokens[drawn], top)
            slot.logprobs[draws.owner[drawn], draws.turn[drawn], : 1 + 2 * top] = words
        following = work.following(slot)
        for top in np.unique(prompt_tops[prompt_tops != NO_LOGPROBS]):
            known = np.flatnonzero((np.repeat(prompt_tops, work.count) == top) & (following >= 0))
            slot.prompt_logprobs[work.given[known], : 1 + 2 * top] = logprob_words(hashes[known], following[known], top)

    def _advance(
        self, plan: StepPlan, slot: StepSlot, work: Work, draws: Draws, hashes: Hashes, sampled: Sampled
    ) -> None:
        """Verify drafts, move all rows on, and write the results."""
        cursors, rows = self._cursors, work.row[draws.rows]
        verdict = verify(sampled, work.tokens[draws.place], draws.turns, cursors.most_drafts)
        cursors.length[work.row] = work.start + work.count
        cursors.advance(rows, work.drafts[draws.rows], verdict)
        last = hashes[work.first + cursors.length[work.row] - work.start - 1]
        self._memory.keep(work.row, last)
        self._draft(rows, last[draws.rows], slot.delta[draws.rows].astype(np.int64))
        write_results(slot, plan.rows, draws.rows, verdict, cursors.drafted[rows])

    def _draft(self, rows: Indices, hashes: Hashes, deltas: Indices) -> None:
        """Invent drafts after rows whose last final position has this hash."""
        cursors, most = self._cursors, self._cursors.most_drafts
        right = self._random.random((most, len(rows))) < self._accept
        counts = self._random.integers(0, most + 1, len(rows))
        token = cursors.pending[rows, 0]
        for turn in range(most):
            places = cursors.length[rows] + turn
            hashes = chain(hashes, token.astype(np.uint64) + marks(places, places + deltas))
            token = next_token(hashes)
            cursors.pending[rows, 1 + turn] = np.where(right[turn], token, other_token(token))
        cursors.drafted[rows] = counts


def fake_hello(config: Config) -> Hello:
    """What the fake executor can hold, from the configuration."""
    max_model_len = config.max_model_len or 8192
    num_blocks = config.num_blocks or config.max_num_seqs * -(-max_model_len // config.block_size)
    return Hello(num_blocks, config.block_size, max_model_len, VOCAB_SIZE, (EOS_TOKEN_ID,))


def serve(process: Process) -> None:
    """Serve no model."""
    config = process.config

    def load(slots: tuple[StepSlot, ...]) -> AtOnce:
        drafts = config.num_speculative_tokens
        return AtOnce(FakeRunner(slots, fake_hello(config), config.max_num_seqs, config.fake_step_s, drafts))

    serve_plans(process, load)


def main() -> None:
    run("executor", serve)


if __name__ == "__main__":
    main()
