"""What a step costs attention."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fourstroke.procs.scheduler.cost import StepCost, step_cost

from .driver import Driver


def cost_of(scheduled: list[int], contexts: list[int]) -> StepCost:
    counts = np.array(scheduled, np.int32)
    return step_cost(np.array(contexts, np.int32) - counts, counts)


@pytest.mark.parametrize(
    "scheduled, contexts, sums",
    [
        ([4, 3, 1], [6, 3, 10], (26, 43, 19)),
        ([65536], [65536], (65536**2, 65536**2, 65536)),
        ([3], [100], (9, 300, 100)),
    ],
)
def test_sums(scheduled, contexts, sums):
    """Σq², Σqk and Σk, exact beyond 32 bits. (BT-5)"""
    cost = cost_of(scheduled, contexts)
    assert (cost.squares, cost.products, cost.contexts) == sums


rows = st.lists(st.tuples(st.integers(0, 50), st.integers(1, 50)), max_size=8)


@given(rows=rows)
def test_each_token_is_paired_with_itself_and_all_before_it(rows):
    """The sums give what counting gives."""
    starts, counts = np.array(rows, np.int32).reshape(-1, 2).T
    pairs = sum(place + 1 for start, count in rows for place in range(start, start + count))
    assert step_cost(starts, counts).pairs == pairs


def test_the_scheduler_adds_up_what_it_plans():
    """A prompt of 4 in two chunks and one decode: 5 tokens see 15, and 2, 4 and 5 were read."""
    driver = Driver(long_prefill_threshold=2)
    driver.submit(1, [1, 2, 3, 4], max_tokens=2)
    driver.run()
    statistics = driver.core.statistics
    assert (statistics.attention_pairs, statistics.kv_tokens_read) == (15, 11)
