"""Rows of logits in any type: the numbers that torch has, and the highest of them."""

import hypothesis.strategies as st
import numpy as np
import torch
from hypothesis import given, settings
from hypothesis.extra.numpy import arrays

from fourstroke.procs.executor.logits import Logits

BITS = arrays(np.int16, st.integers(1, 40), elements=st.integers(-(2**15), 2**15 - 1))


@given(BITS)
@settings(max_examples=500, deadline=None)
def test_the_highest_of_any_bfloat16_numbers(bits: np.ndarray) -> None:
    """Of all bit patterns, NaN of both signs, zeros and infinities among them: the first highest of their floats."""
    numbers = torch.from_numpy(bits).view(torch.bfloat16)[None]
    expected = numbers[0].float().numpy()
    logits = Logits(numbers)
    token, highest = logits.best(0)
    assert token == int(np.argmax(expected))
    np.testing.assert_equal(highest, expected[token])
    np.testing.assert_equal(logits.row(0), expected)


def test_rows_that_are_changed() -> None:
    """A changed row is what is asked later, in each type; its neighbour stays."""
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        logits = Logits(torch.tensor([[1.0, 3.0, 2.0], [5.0, 4.0, 0.0]], dtype=dtype))
        logits.row(0)[1] = -np.inf
        assert logits.best(0) == (2, 2.0)
        assert logits.best(1) == (0, 5.0)
        assert logits.row(1).tolist() == [5.0, 4.0, 0.0]
