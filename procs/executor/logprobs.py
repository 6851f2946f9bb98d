"""Log-probabilities of tokens, and their words in a step slot (see ipc/messages.Logprobs).

They are those of the model itself: of its logits in float32, before penalties, biases, masks, temperature and filters.
What is written depends on a row's own logits only; of equal logits the lower token id is the better.
"""

from __future__ import annotations

import numpy as np

from ...ipc.plan import Column
from .draw import at_most_kth_highest
from .logits import Floats
from .verify import Indices
from .words import put_words


class Scores:
    """The log-probabilities of a row of logits: as many of them as are asked for."""

    def __init__(self, logits: Floats) -> None:
        """`logits` must stay as they are until the last question."""
        self._logits = logits
        highest = logits.max()
        self.failed = not np.isfinite(highest)
        """Whether the logits give no probabilities: one is NaN or infinite, or all are minus infinity."""
        self._highest = np.float32(np.nan) if self.failed else highest
        weights = np.subtract(logits, self._highest)
        self._log_sum = np.log(np.exp(weights, out=weights).sum())

    def of(self, tokens: Indices | int) -> Floats:
        """The log-probabilities of these tokens."""
        found: Floats = self._logits[tokens] - self._highest - self._log_sum
        return found

    def write(self, token: int, top: int, into: Column) -> None:
        """Write the words of a token and of the `top` best ones."""
        ids = best(self._logits, top)
        put_words(into, top, self.of(token), ids, self.of(ids))


def best(row: Floats, count: int) -> Indices:
    """The ids of the highest numbers of a row, best first; none if the row has NaN only."""
    if not count:
        return np.zeros(0, np.int64)
    ids = np.flatnonzero(row >= at_most_kth_highest(row, count))
    return ids[np.lexsort((ids, -row[ids]))][:count]
