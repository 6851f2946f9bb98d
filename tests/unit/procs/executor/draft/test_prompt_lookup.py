"""Drafts by prompt lookup against the plain definition, and what a row's history is."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from fourstroke.procs.executor.draft import prompt_lookup
from fourstroke.procs.executor.draft.prompt_lookup import LONGEST, PromptLookup, continue_by_lookup


def plain(tokens: list[int], most: int) -> list[int]:
    """Longest suffix first, each from the left."""
    for size in range(LONGEST, 1, -1):
        for start in range(len(tokens) - size):
            if tokens[start : start + size] == tokens[-size:]:
                return tokens[start + size : start + size + most]
    return []


@given(st.lists(st.integers(0, 3), min_size=1, max_size=40), st.integers(1, 6))
def test_drafts_are_those_of_the_definition(tokens: list[int], most: int) -> None:
    """What followed the longest suffix that occurred before, when it occurred first."""
    assert continue_by_lookup(np.array(tokens, np.int32), most).tolist() == plain(tokens, most)


def test_an_unknown_ending_gives_no_drafts() -> None:
    """One token that occurred before is not enough."""
    assert not len(continue_by_lookup(np.array([1, 2, 3, 4, 2], np.int32), 4))


@given(
    st.lists(st.integers(0, 2), min_size=1, max_size=30),
    st.sampled_from([1, 4, 16]),
    st.sampled_from([4, 8, 1000]),
)
def test_a_row_reads_its_tokens_through_its_table(tokens: list[int], block_size: int, window: int) -> None:
    """Scattered blocks in any order of writing give the row's own tokens, as far back as the window reaches."""
    length = len(tokens) - 1
    table = np.random.default_rng(1).permutation(64)[: -(-length // block_size) + 1].astype(np.int32)
    places = np.arange(length)
    slots = table[places // block_size].astype(np.int64) * block_size + places % block_size
    lookup = PromptLookup(64, block_size, 3)
    lookup.remember(np.arange(64 * block_size), np.full(64 * block_size, 9))
    lookup.remember(slots[::-1], np.array(tokens[:-1], np.int64)[::-1])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prompt_lookup, "WINDOW_TOKENS", window)
        drafts = lookup.propose(table, length, tokens[-1]).tolist()
    first = max(0, length - window) // block_size * block_size
    assert drafts == plain(tokens[first:], 3)
