"""From a step's hidden states to tokens and log-probabilities, a part of them at a time.

Logits are computed only where somebody wants them: for the draws of a step, and for the tokens of prompts whose
log-probabilities are asked for. 2,048 tokens of 49,152 logits would be 400 MB in float32; a part's are 32 MB, and
so is each copy of them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from ...ipc.messages import NO_LOGPROBS
from ...ipc.plan import StepSlot
from .batch import Batch
from .compute import LogitSource
from .logits import Floats, Logits
from .logprobs import Scores
from .rows import Rows
from .sampler import sample
from .verify import Indices, Sampled, verify

_PART_LOGITS = 1 << 23
"""Logits that are computed at once."""


class Head:
    """The end of a step: a model's logits, and the rows' rules."""

    def __init__(self, model: LogitSource, rows: Rows, vocab_size: int) -> None:
        self._model = model
        self._rows = rows
        self._vocab_size = vocab_size

    def sample(self, batch: Batch, hidden: torch.Tensor, slot: StepSlot) -> Sampled:
        """All draws of a step, from hidden states [tokens, hidden], and the log-probabilities of what was drawn."""
        parts = [self._sample_part(batch, hidden, slot, part) for part in self._parts(len(batch.draws.place))]
        if not parts:
            return Sampled(np.zeros(0, np.int64), np.zeros(0, np.bool_))
        tokens = np.concatenate([part.tokens for part in parts])
        sampled = Sampled(tokens, np.concatenate([part.failed for part in parts]))
        self._follow(batch, sampled)
        return sampled

    def _sample_part(self, batch: Batch, hidden: torch.Tensor, slot: StepSlot, part: slice) -> Sampled:
        place, owner, turn = batch.draws.place[part], batch.draws.owner[part], batch.draws.turn[part]
        logits = Logits(self._model.logits(hidden[torch.from_numpy(place)]))
        rows, positions = batch.rows[owner], batch.positions[place] + 1
        tops = self._rows.logprobs[rows]
        wanted = np.flatnonzero((tops != NO_LOGPROBS) & (turn < slot.sampled.shape[1])).tolist()
        scores = {draw: Scores(self._unsteered(logits, draw, int(rows[draw]))) for draw in wanted}
        for draw, row in enumerate(rows.tolist() if self._rows.steering else ()):
            if (steering := self._rows.steering.get(row)) is not None:
                drafts = batch.tokens[place[draw] - turn[draw] + 1 : place[draw] + 1]
                steering.apply(logits.row(draw), int(positions[draw]), drafts.tolist())
        sampled = sample(logits, self._rows.rules.of(rows), positions)
        for draw, of_draw in scores.items():
            into = slot.logprobs[batch.order[owner[draw]], turn[draw]]
            of_draw.write(int(sampled.tokens[draw]), int(tops[draw]), into)
        return sampled

    def _unsteered(self, logits: Logits, draw: int, row: int) -> Floats:
        """A row of the model's own logits, which stays what it is when they are steered."""
        found = logits.row(draw)
        return found.copy() if row in self._rows.steering else found

    def _follow(self, batch: Batch, sampled: Sampled) -> None:
        """Tell those who steer what their rows have said: what was drawn, as far as drafts were right."""
        if not self._rows.steering:
            return
        draws = batch.draws
        verdict = verify(sampled, batch.tokens[draws.place], draws.turns, int(draws.turns.max(initial=1)) - 1)
        for row, tokens, produced, failed in zip(
            batch.rows[draws.rows].tolist(), verdict.tokens, verdict.produced, verdict.failed, strict=True
        ):
            if not failed and (steering := self._rows.steering.get(row)) is not None:
                steering.follow(tokens[:produced].tolist())

    def score_prompts(self, batch: Batch, hidden: torch.Tensor, slot: StepSlot) -> Indices:
        """Write the log-probabilities of prompts; the rows, by their place in the plan, in which they are NaN."""
        tops = np.repeat(self._rows.prompt_logprobs[batch.rows], batch.spans.count)
        known = (batch.following >= 0) & (batch.following < self._vocab_size)
        wanted = np.flatnonzero((tops != NO_LOGPROBS) & known)
        failed = np.zeros(len(wanted), np.bool_)
        for part in self._parts(len(wanted)):
            places = wanted[part]
            logits = Logits(self._model.logits(hidden[torch.from_numpy(places)]))
            for index, place in enumerate(places.tolist()):
                scores = Scores(logits.passing(index))
                failed[part.start + index] = scores.failed
                into = slot.prompt_logprobs[batch.given[place]]
                scores.write(int(batch.following[place]), int(tops[place]), into)
        return np.unique(batch.order[batch.owners[wanted[failed]]])

    def _parts(self, count: int) -> Iterator[slice]:
        """Slices that together cover so many rows of logits."""
        size = max(1, _PART_LOGITS // self._vocab_size)
        return (slice(start, min(start + size, count)) for start in range(0, count, size))
