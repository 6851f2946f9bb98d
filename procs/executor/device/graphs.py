"""Graphs of decode steps: recorded once for each of some sizes, replayed with the rows of a step and padding.

Launching the hundreds of kernels of a small batch takes the host longer than they take the device; a graph is one
launch. It repeats what was recorded with the same shapes on the same memory: so a step's rows are padded to the next
size, and inputs and outputs lie at fixed places (buffers.py). Steps with chunks of prompts are not replayed.

Knows no torch: what records is the card.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from functools import partial
from typing import Generic

from .card import Card, Output, Recording

_SMALLEST = (1, 2, 4)
_SPACING = 8


def decode_sizes(most: int) -> tuple[int, ...]:
    """1, 2, 4, 8, 16, 24, ... and `most` itself; none if `most` is 0."""
    sizes = {size for size in (*_SMALLEST, *range(_SPACING, most, _SPACING), most) if 0 < size <= most}
    return tuple(sorted(sizes))


class DecodeGraphs(Generic[Output]):
    """The graphs, of a step of so many rows as `run` is called with.

    `prepare` puts inputs of that size there that harm nobody, for the run before the recording.
    """

    def __init__(
        self, card: Card, sizes: tuple[int, ...], prepare: Callable[[int], None], run: Callable[[int], Output]
    ) -> None:
        self._card = card
        self._sizes = sizes
        self._prepare = prepare
        self._run = run
        self._recordings: dict[int, Recording[Output]] = {}

    def record(self) -> None:
        """Run each size once, so that nothing is compiled while it is recorded, then record it; the largest first,
        whose memory the others find in the pool.
        """
        for size in reversed(self._sizes):
            self._prepare(size)
            self._card.warm_up(partial(self._run, size))
            self._recordings[size] = self._card.record(partial(self._run, size))

    def fit(self, rows: int) -> int | None:
        """The smallest recorded size that holds so many rows; None if none does."""
        at = bisect_left(self._sizes, rows)
        return self._sizes[at] if at < len(self._sizes) and self._sizes[at] in self._recordings else None

    def replay(self, size: int) -> Output:
        """Run the graph of that size on what its inputs hold now. Its output is overwritten by the next replay."""
        recording = self._recordings[size]
        recording.replay()
        return recording.output
