"""Penalties on what was said already, as vLLM has them: first for repetition, then for frequency and presence."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...ipc.messages import Sampling
from .logits import Floats


class Penalties:
    """One row's: what it has said, and what that does to its logits, of which it touches those of said tokens alone.

    Repetition: a logit above 0 is divided by it, another multiplied, for tokens of the prompt (`seen`) and the output.
    Frequency and presence are subtracted for tokens of the output: as often as they are there, and once.
    """

    def __init__(self, sampling: Sampling, seen: Sequence[int], generated: Sequence[int]) -> None:
        """`seen` are different tokens."""
        self._repetition = np.float32(sampling.repetition_penalty)
        self._frequency = np.float32(sampling.frequency_penalty)
        self._presence = np.float32(sampling.presence_penalty)
        # Columns of the different tokens, in the order in which they were first said; they grow as there are more.
        self._places = {token: place for place, token in enumerate(seen)}
        self._tokens = np.array(seen, np.int64)
        self._times = np.zeros(len(seen), np.int32)  # in the output
        self.follow(generated)

    def follow(self, tokens: Sequence[int]) -> None:
        """The row has said some more."""
        for token in tokens:
            place = self._places.setdefault(token, len(self._places))
            if place == len(self._tokens):
                room = max(16, place)
                self._tokens = np.concatenate([self._tokens, np.zeros(room, np.int64)])
                self._times = np.concatenate([self._times, np.zeros(room, np.int32)])
            self._tokens[place] = token
            self._times[place] += 1

    def apply(self, logits: Floats, drafts: Sequence[int]) -> None:
        """Change the logits [vocabulary] of what follows what was said and then `drafts`, all of them tokens of it."""
        before = len(self._places)
        self.follow(drafts)
        count = len(self._places)
        said, times = self._tokens[:count], self._times[:count]
        values = logits[said]
        values = np.where(values > 0, values / self._repetition, values * self._repetition)
        logits[said] = values - self._frequency * times.astype(np.float32) - self._presence * (times > 0)
        for token in drafts:
            self._times[self._places[token]] -= 1
        while len(self._places) > before:  # what the drafts said for the first time came last
            self._places.popitem()
