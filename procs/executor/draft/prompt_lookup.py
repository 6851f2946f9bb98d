"""Drafts by looking them up in what a row has said so far: no model, no weights.

Where the last few tokens of a row have occurred before, what followed them then is likely to follow again: in
summaries, edits of code, answers that quote. Source: prompt lookup decoding (Apoorv Saxena, 2023,
github.com/apoorvumang/prompt-lookup-decoding), and vLLM's ngram_proposer.

A row's tokens are kept by their places in the KV cache and read through its block table. So a row knows what a
prefix hit gave it, without a word from the scheduler. Blocks received from another engine hold tokens of their
owner before, which make bad drafts and nothing worse.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ....ipc.plan import Column

LONGEST = 4
"""So many of the last tokens are sought, and at least two: a single one occurs everywhere and foretells little."""

WINDOW_TOKENS = 16_384
"""So far back is looked, which bounds the cost: a row of 1,024 tokens takes 27 us, one of 8,192 33 us, and none more
than 0.1 ms, or 0.3 ms where it says one and the same token all the time."""


class PromptLookup:
    """The tokens of the whole cache, and drafts from those of a row."""

    def __init__(self, num_blocks: int, block_size: int, most_drafts: int) -> None:
        self._tokens = np.zeros((num_blocks, block_size), np.int32)
        self._most_drafts = most_drafts

    def remember(self, slots: npt.NDArray[np.int64], tokens: npt.NDArray[np.int64]) -> None:
        """These tokens lie at these places of the cache now."""
        self._tokens.reshape(-1)[slots] = tokens

    def propose(self, table: Column, length: int, last: int) -> Column:
        """Drafts for a row with this block table, `length` tokens in the cache, and one that was sampled last."""
        block_size = self._tokens.shape[1]
        first_block = max(0, length - WINDOW_TOKENS) // block_size
        blocks = table[first_block : -(-length // block_size)]
        tokens = np.append(self._tokens[blocks].reshape(-1)[: length - first_block * block_size], np.int32(last))
        return continue_by_lookup(tokens, self._most_drafts)


def continue_by_lookup(tokens: Column, most: int) -> Column:
    """The tokens, at most so many, that followed the last ones when these occurred for the first time.

    Of the last LONGEST, .., 2 tokens the most that occurred before are taken; nothing follows if not even two did.
    """
    start = 0
    ends = np.flatnonzero(tokens[:-1] == tokens[-1])
    for size in range(2, min(LONGEST, len(tokens) - 1) + 1):
        ends = ends[ends >= size - 1]
        ends = ends[tokens[ends - (size - 1)] == tokens[-size]]
        if not len(ends):
            break
        start = int(ends[0]) + 1
    return tokens[start : start + most] if start else tokens[:0]
