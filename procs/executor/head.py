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
from .logprobs import write_logprobs
from .models.llama import Llama
from .rows import Rows
from .sampler import sample
from .verify import Indices, Sampled

_PART_LOGITS = 1 << 23
"""Logits that are computed at once."""


class Head:
    """The end of a step: a model's logits, and the rows' rules."""

    def __init__(self, model: Llama, rows: Rows, vocab_size: int) -> None:
        self._model = model
        self._rows = rows
        self._vocab_size = vocab_size

    def sample(self, batch: Batch, hidden: torch.Tensor, slot: StepSlot) -> Sampled:
        """All draws of a step, from hidden states [tokens, hidden], and the log-probabilities of what was drawn."""
        parts = [self._sample_part(batch, hidden, slot, part) for part in self._parts(len(batch.draws.place))]
        if not parts:
            return Sampled(np.zeros(0, np.int64), np.zeros(0, np.bool_))
        return Sampled(np.concatenate([part.tokens for part in parts]), np.concatenate([part.failed for part in parts]))

    def _sample_part(self, batch: Batch, hidden: torch.Tensor, slot: StepSlot, part: slice) -> Sampled:
        place, owner, turn = batch.draws.place[part], batch.draws.owner[part], batch.draws.turn[part]
        logits = self._model.logits(hidden[torch.from_numpy(place)])
        rows, positions = batch.rows[owner], batch.positions[place] + 1
        tops = self._rows.logprobs[rows]
        wanted = np.flatnonzero((tops != NO_LOGPROBS) & (turn < slot.sampled.shape[1]))
        logprobs = _log_softmax(logits[torch.from_numpy(wanted)])  # before the logits are adjusted, which is in place
        sampled = sample(self._rows.adjust(logits, rows, positions), self._rows.rules.of(rows), positions)
        words = [slot.logprobs[batch.order[owner[draw]], turn[draw]] for draw in wanted]
        write_logprobs(logprobs, sampled.tokens[wanted], tops[wanted], words)
        return sampled

    def score_prompts(self, batch: Batch, hidden: torch.Tensor, slot: StepSlot) -> Indices:
        """Write the log-probabilities of prompts; the rows, by their place in the plan, in which they are NaN."""
        tops = np.repeat(self._rows.prompt_logprobs[batch.rows], batch.spans.count)
        known = (batch.following >= 0) & (batch.following < self._vocab_size)
        wanted = np.flatnonzero((tops != NO_LOGPROBS) & known)
        failed = np.zeros(len(wanted), np.bool_)
        for part in self._parts(len(wanted)):
            places = wanted[part]
            logprobs = _log_softmax(self._model.logits(hidden[torch.from_numpy(places)]))
            failed[part] = logprobs[:, 0].isnan().numpy()
            words = [slot.prompt_logprobs[given] for given in batch.given[places]]
            write_logprobs(logprobs, batch.following[places], tops[places], words)
        return np.unique(batch.order[batch.owners[wanted[failed]]])

    def _parts(self, count: int) -> Iterator[slice]:
        """Slices that together cover so many rows of logits."""
        size = max(1, _PART_LOGITS // self._vocab_size)
        return (slice(start, min(start + size, count)) for start in range(0, count, size))


def _log_softmax(logits: torch.Tensor) -> torch.Tensor:
    return logits.log_softmax(-1, dtype=torch.float32)
