"""Acceptance of drafts against the plain definition, one row and one draft after the other."""

import hypothesis.strategies as st
import numpy as np
from hypothesis import given

from fourstroke.procs.executor.cursors import Cursors
from fourstroke.procs.executor.verify import Sampled, verify

draw = st.tuples(st.integers(0, 2), st.integers(0, 2), st.sampled_from([False, False, False, True]))
rows = st.lists(st.lists(draw, min_size=1, max_size=5), min_size=0, max_size=6)


def plain(row: list[tuple[int, int, bool]], most: int) -> list[int]:
    """The tokens that a row produces from draws of (sampled, token before it, failed)."""
    tokens = [row[0][0]]
    for sampled, fed, failed in row[1 : 1 + most]:
        if fed != tokens[-1] or failed:
            break
        tokens.append(sampled)
    return tokens


@given(rows, st.integers(0, 4))
def test_a_draft_is_accepted_while_all_were_right(rows: list[list[tuple[int, int, bool]]], most: int) -> None:
    """A row yields what it would have sampled one by one, as far as its drafts were right and nothing failed."""
    flat = [draw for row in rows for draw in row]
    sampled, fed, failed = (np.array([draw[part] for draw in flat], np.int64) for part in range(3))
    turns = np.array([len(row) for row in rows], np.int64)
    verdict = verify(Sampled(sampled, failed.astype(bool)), fed, turns, most)
    produced = [of_row[:count].tolist() for of_row, count in zip(verdict.tokens, verdict.produced, strict=True)]
    assert produced == [plain(row, most) for row in rows]
    assert verdict.failed.tolist() == [row[0][2] for row in rows]
    assert verdict.tokens.shape == (len(rows), 1 + most)


def test_rejected_positions_are_not_final() -> None:
    """A row of four tokens at 10, three of them drafts of which one was right, stands at 12."""
    cursors = Cursors(4, 3)
    sampled = Sampled(np.array([5, 6, 7, 8]), np.zeros(4, np.bool_))
    verdict = verify(sampled, np.array([1, 5, 9, 7]), np.array([4]), 3)
    cursors.length[2] = 14
    cursors.advance(np.array([2]), np.array([3]), verdict)
    assert verdict.tokens[0, : verdict.produced[0]].tolist() == [5, 6]
    assert (cursors.length[2], cursors.pending[2, 0], cursors.drafted[2]) == (12, 6, 0)
