"""Step slots: arrays of the promised sizes that never overlap."""

import dataclasses

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fourstroke.ipc.plan import StepShape, slots_for_depth, step_slots

shapes = st.builds(StepShape, max_rows=st.integers(1, 8), max_tokens=st.integers(1, 64))


def arrays(slots):
    return [getattr(slot, field.name) for slot in slots for field in dataclasses.fields(slot)]


@given(shapes, st.integers(1, 3))
def test_arrays_do_not_overlap_and_fill_the_memory(shape, count):
    """Each word of the memory belongs to exactly one array of one slot."""
    memory = bytearray(shape.memory_bytes(count))
    slots = step_slots(memory, shape, count)
    for array in arrays(slots):
        array += 1
    assert len(slots) == count
    assert (np.frombuffer(memory, np.int32) == 1).all()


@given(shapes)
def test_sizes(shape):
    """A slot holds as many rows, tokens and block changes as its shape says."""
    (slot,) = step_slots(bytearray(shape.memory_bytes(1)), shape, 1)
    for column in (slot.row, slot.start, slot.count, slot.flags, slot.sampled):
        assert (len(column), column.dtype) == (shape.max_rows, np.int32)
    assert len(slot.tokens) == shape.max_tokens
    assert {len(slot.block_row), len(slot.block_index), len(slot.block_id)} == {shape.max_blocks}


@given(shapes)
def test_both_sides_see_the_same_arrays(shape):
    """What the scheduler fills in the executor reads, and the other way round."""
    memory = bytearray(shape.memory_bytes(2))
    ours, theirs = step_slots(memory, shape, 2), step_slots(memory, shape, 2)
    for value, (mine, yours) in enumerate(zip(arrays(ours), arrays(theirs), strict=True)):
        mine.flat[-1] = value
        assert yours.flat[-1] == value


def test_every_step_can_change_enough_blocks():
    """A step that computes all its tokens in blocks of one token has room for their block changes."""
    shape = StepShape(max_rows=256, max_tokens=1 << 20)
    assert shape.max_blocks >= shape.max_tokens + shape.max_rows


def test_one_slot_more_than_open_steps():
    """There is always a slot to fill while as many steps as the pipeline is deep are open."""
    assert [slots_for_depth(depth) for depth in (1, 2)] == [2, 3]
