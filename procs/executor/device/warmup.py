"""The largest step that there can be, run before there are requests, to see what memory it takes.

Knows no kernels and no card: both are handed in.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .card import Card
from .padding import Columns
from .program import Mix
from .sizing import Measured


def largest_step(rows: int, tokens: int, length: int, dummy_row: int) -> tuple[Columns, Mix]:
    """A step of so many rows and tokens, all of them the dummy's and `length` tokens long: decodes, then chunks.

    If chunks of that length do not make so many tokens, it has fewer.
    """
    rows = min(rows, tokens)
    more = np.clip(tokens - rows - np.arange(rows) * (length - 1), 0, length - 1)[::-1]
    count = 1 + more
    first = np.cumsum(count) - count
    total = int(count.sum())
    within = np.arange(total) - np.repeat(first, count)
    columns = {
        **{name: np.full(rows, dummy_row) for name in ("rows", "targets")},
        "places": first + count - 1,
        "first": first,
        "count": count,
        **{name: np.full(rows, length) for name in ("lengths", "next_positions")},
        "seeds": np.zeros(rows, np.int64),
        # All filters on, so that all of the sampler runs.
        "temperature": np.ones(rows),
        "top_k": np.full(rows, 50),
        "top_p": np.full(rows, 0.9),
        "min_p": np.full(rows, 0.01),
        "tokens": np.zeros(total, np.int64),
        "positions": np.repeat(length - count, count) + within,
        **{name: np.full(total, -1) for name in ("sources", "slots")},
    }
    return columns, Mix(int(np.count_nonzero(count == 1)), int(count.max()))


def measure(card: Card, mixed: Callable[[], object], decode: Callable[[], object]) -> Measured:
    """Run the largest step and the largest decode step, and tell what they take."""
    card.warm_up(mixed)
    card.warm_up(decode)
    card.forget_peak()
    before = card.memory().held_by_torch
    decode()
    scratch = card.memory().peak_of_torch - before
    card.forget_peak()
    mixed()
    decode()
    return Measured(card.memory(), max(0, scratch))
