"""The step that memory is measured with is the largest that can come."""

import hypothesis.strategies as st
import numpy as np
from hypothesis import given

from fourstroke.procs.executor.device.buffers import PER_ROW, PER_TOKEN
from fourstroke.procs.executor.device.warmup import largest_step, measure

from .cpu_card import CpuCard

DUMMY = 99


@given(st.integers(1, 40), st.integers(1, 200), st.integers(1, 60))
def test_it_is_a_step_and_the_largest(rows: int, tokens: int, length: int) -> None:
    """It has all rows and all tokens, as far as rows of that length make so many, decodes before chunks."""
    columns, mix = largest_step(rows, tokens, length, DUMMY)
    count, first = columns["count"], columns["first"]
    assert len(count) == min(rows, tokens)
    assert count.sum() == len(columns["tokens"]) == min(tokens, len(count) * length)
    assert {len(columns[name]) for name in PER_ROW} == {len(count)}
    assert {len(columns[name]) for name in PER_TOKEN} == {count.sum()}
    assert (np.diff(count) >= 0).all()
    assert (count[: mix.decodes] == 1).all()
    assert (count[mix.decodes :] > 1).all()
    assert mix.most_tokens == count.max() <= length
    for row in range(len(count)):
        own = columns["positions"][first[row] : first[row] + count[row]]
        assert own.tolist() == list(range(length - count[row], length))


@given(st.integers(1, 40), st.integers(1, 200), st.integers(1, 60))
def test_it_harms_nobody(rows: int, tokens: int, length: int) -> None:
    """All rows are the dummy, and nothing is written to the cache."""
    columns, _ = largest_step(rows, tokens, length, DUMMY)
    assert set(columns["rows"]) == set(columns["targets"]) == {DUMMY}
    assert set(columns["slots"]) == set(columns["sources"]) == {-1}


def test_measuring_runs_each_before_it_counts() -> None:
    """What compilers take is not counted: the first runs are not, and the peak is that of both steps together."""
    notes: list[str] = []
    card = CpuCard()
    card.forget_peak = lambda: notes.append("forget")  # type: ignore[method-assign]
    measured = measure(card, lambda: notes.append("mixed"), lambda: notes.append("decode"))
    assert notes == ["mixed", "decode", "forget", "decode", "forget", "mixed", "decode"]
    assert measured.use == card.memory()
