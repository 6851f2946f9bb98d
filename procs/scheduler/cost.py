"""What a step costs attention, whatever the model: exact sums over its rows. The core adds them up for the board.

Knows no requests and no executor.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...ipc.plan import Column


@dataclass(frozen=True, slots=True)
class StepCost:
    """Sums over rows that compute q tokens each, with which their contexts have k: Σq, Σq², Σqk and Σk.

    Σk is how many tokens' KV is read.
    """

    tokens: int
    squares: int
    products: int
    contexts: int

    @property
    def pairs(self) -> int:
        """Pairs of a query and a key: a token sees itself and all before it, so the q of a row see k-q+1 to k."""
        return self.products - (self.squares - self.tokens) // 2


def step_cost(starts: Column, counts: Column) -> StepCost:
    """The cost of rows that compute counts[i] tokens from position starts[i] on."""
    queries = counts.astype(np.int64)
    contexts = starts + queries
    return StepCost(int(queries.sum()), int(queries @ queries), int(queries @ contexts), int(contexts.sum()))
