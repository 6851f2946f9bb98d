"""A step's columns on their way to the device: what is put in comes out, at the same place for the same shape."""

import dataclasses

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given

from fourstroke.procs.executor.device.buffers import (
    PER_CHANGE,
    PER_ROW,
    PER_TOKEN,
    StepBuffers,
    StepInput,
    layout,
)
from fourstroke.procs.executor.device.padding import dummies

from .cpu_card import CpuCard

ROWS, TOKENS, CHANGES = 9, 30, 12
sizes = st.tuples(st.integers(0, ROWS), st.integers(0, TOKENS), st.integers(0, CHANGES))


def test_every_column_has_a_view() -> None:
    """The table of types and the views name the same columns."""
    assert {field.name for field in dataclasses.fields(StepInput)} == {*PER_ROW, *PER_TOKEN, *PER_CHANGE}


@given(sizes)
def test_columns_do_not_overlap(shape: tuple[int, int, int]) -> None:
    """One after the other, each aligned to 16 bytes."""
    end = 0
    for column in layout(*shape).values():
        assert column.offset >= end
        assert column.offset % 16 == 0
        end = column.end


@given(sizes, sizes)
def test_no_step_is_larger_than_the_largest(shape: tuple[int, int, int], larger: tuple[int, int, int]) -> None:
    """A step of fewer rows, tokens and changes ends no later."""
    most = tuple(map(max, shape, larger))
    assert max(c.end for c in layout(*shape).values()) <= max(c.end for c in layout(*most).values())


@given(sizes, st.integers(0, 1))
def test_what_is_sent_arrives(shape: tuple[int, int, int], slot: int) -> None:
    """Every column, in its own type, whatever the host's was."""
    rows, tokens, changes = shape
    random = np.random.default_rng(0)
    counts = {**dict.fromkeys(PER_ROW, rows), **dict.fromkeys(PER_TOKEN, tokens), **dict.fromkeys(PER_CHANGE, changes)}
    columns = {name: random.integers(0, 100, count) for name, count in counts.items()}
    inputs = StepBuffers(CpuCard(), 2, ROWS, TOKENS, CHANGES).send(slot, rows, tokens, columns)
    types = PER_ROW | PER_TOKEN | PER_CHANGE
    for name, column in columns.items():
        view = getattr(inputs, name)
        assert view.dtype == types[name]
        np.testing.assert_array_equal(view.numpy(), column)


@pytest.mark.parametrize("size", [1, 4, ROWS])
def test_a_graph_finds_its_inputs(size: int) -> None:
    """The columns of a padded step lie where the graph of its size reads them, with changes of tables or without."""
    buffers = StepBuffers(CpuCard(), 1, ROWS, TOKENS, CHANGES)
    recorded = buffers.views(size, size)
    changes = {name: np.arange(CHANGES) for name in PER_CHANGE}
    sent = buffers.send(0, size, size, dummies(size, ROWS) | changes)
    for name in (*PER_ROW, *PER_TOKEN):
        assert getattr(sent, name).data_ptr() == getattr(recorded, name).data_ptr()
        assert torch.equal(getattr(sent, name), getattr(recorded, name))
