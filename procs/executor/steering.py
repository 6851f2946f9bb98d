"""What a row does to its logits before a token is chosen: penalties, biases, and which tokens it may not choose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ...ipc.messages import NewRow
from .logits import Floats
from .penalties import Penalties
from .structure import Grammars, Structure
from .verify import Indices

NOT_FINITE = "the logits are not finite"


class Steering:
    """One row's. It is told of each token that the row says, and asked what may follow that and some drafts."""

    def __init__(self, new: NewRow, grammars: Grammars) -> None:
        """Token ids that are not in the vocabulary are ignored."""
        sampling, vocab_size = new.sampling, grammars.vocab_size
        seen, generated = (_known(np.frombuffer(column, np.int32), vocab_size) for column in (new.seen, new.generated))
        self._penalties: Penalties | None = None
        self._structure: Structure | None = None
        if sampling.penalises:
            self._penalties = Penalties(sampling, seen.tolist(), generated.tolist())
        if sampling.grammar:
            self._structure = Structure(grammars, sampling.grammar, generated.tolist())
        biased = np.array(sampling.biased, np.int64)
        known = (biased >= 0) & (biased < vocab_size)
        self._biased, self._biases = biased[known], np.array(sampling.biases, np.float32)[known]
        self._masked_until = new.masked_until
        self._masked = _known(np.array(new.masked_token_ids, np.int64), vocab_size)

    @property
    def failure(self) -> str:
        """Why no token could be chosen."""
        if self._structure is None:
            return NOT_FINITE
        return self._structure.failure or "the grammar and the logits leave no token"

    def follow(self, tokens: Sequence[int]) -> None:
        """The row has said some more."""
        if self._penalties is not None:
            self._penalties.follow(tokens)
        if self._structure is not None:
            self._structure.follow(tokens)

    def apply(self, logits: Floats, position: int, drafts: Sequence[int]) -> None:
        """Change the logits [vocabulary] of the token at `position`, which follows what was said and then `drafts`."""
        if self._penalties is not None:
            self._penalties.apply(logits, drafts)
        logits[self._biased] += self._biases
        masked = self._masked if position < self._masked_until else self._masked[:0]
        if self._structure is None:
            logits[masked] = -np.inf
            return
        allowed = self._structure.allowed(drafts)
        if len(masked):
            rest = allowed.copy()
            rest[masked] = False
            if rest.any():  # a complete text is ended by EOS, again and again, until min_tokens are there
                allowed = rest
        logits[~allowed] = -np.inf


def _known(tokens: npt.NDArray[np.integer[Any]], vocab_size: int) -> Indices:
    return tokens[(tokens >= 0) & (tokens < vocab_size)].astype(np.int64)
