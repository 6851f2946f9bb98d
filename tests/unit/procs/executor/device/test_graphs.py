"""Graphs of decode steps, with a card that writes down what it is asked."""

from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from fourstroke.procs.executor.device.card import Recording
from fourstroke.procs.executor.device.graphs import DecodeGraphs, decode_sizes


@given(st.integers(1, 600))
def test_sizes_waste_less_than_eight_rows(most: int) -> None:
    """Every number of rows has a size that is less than 8 larger, and less than twice as large; none is too large."""
    sizes = decode_sizes(most)
    assert sizes == tuple(sorted(set(sizes)))
    assert sizes[-1] == most
    for rows in range(1, most + 1):
        size = next(size for size in sizes if size >= rows)
        assert size - rows < 8
        assert size < 2 * rows or size <= 2


def test_no_decode_fits_the_budget() -> None:
    """Then there are no graphs."""
    assert decode_sizes(0) == ()


class Notes:
    """A card that runs nothing but what it is told to."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def warm_up(self, run: Callable[[], Any]) -> Any:
        self.notes.append("warm up")
        return run()

    def record(self, run: Callable[[], Any]) -> Recording[Any]:
        self.notes.append("record")
        output = run()
        return Recording(lambda: self.notes.append(f"replay {output}"), output)


def graphs(most: int) -> tuple[DecodeGraphs[int], list[str]]:
    card: Any = Notes()

    def run(size: int) -> int:
        card.notes.append(f"run {size}")
        return size

    return DecodeGraphs(card, decode_sizes(most), lambda size: card.notes.append(f"prepare {size}"), run), card.notes


def test_each_size_is_recorded_once_the_largest_first() -> None:
    """And run before on inputs that harm nobody, so that nothing is compiled while it is recorded."""
    made, notes = graphs(4)
    made.record()
    steps = ("prepare {0}", "warm up", "run {0}", "record", "run {0}")
    assert notes == [step.format(size) for size in (4, 2, 1) for step in steps]


@pytest.mark.parametrize("rows, size", [(1, 1), (3, 4), (5, 8), (8, 8), (9, 16), (20, 20), (21, None)])
def test_the_smallest_that_fits(rows: int, size: int | None) -> None:
    """Of 1, 2, 4, 8, 16, 20; a step that is larger has none."""
    made, _ = graphs(20)
    made.record()
    assert made.fit(rows) == size


def test_replaying_runs_what_was_recorded() -> None:
    """No code of the step is run again; the output is the recorded one."""
    made, notes = graphs(2)
    made.record()
    notes.clear()
    assert made.replay(2) == 2
    assert notes == ["replay 2"]


def test_nothing_fits_before_recording() -> None:
    """Steps run without graphs while there are none."""
    assert graphs(8)[0].fit(1) is None
