"""Slots of recurrent state, and the checkpoints in those that are spare."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fourstroke.procs.scheduler.state.state_slots import NO_SLOT, StateSlots, next_cut, row_bases, rows_base

# Slots


def test_a_stateless_model_has_no_slots():
    """Nothing is free, nothing is given. (SL-1)"""
    slots = StateSlots(0)
    assert (slots.free, slots.take(), slots.checkpoint(3, 1)) == (0, None, None)
    slots.check([])


def test_each_request_has_a_slot_of_its_own():
    """Eight are distinct, there is no ninth; all come back. (SL-1, SL-2)"""
    slots = StateSlots(8)
    held = [slots.take() for _ in range(8)]
    assert (sorted(held), slots.free, slots.take()) == (list(range(8)), 0, None)
    slots.check(held)
    for slot in held:
        slots.release(slot)
    assert slots.free == 8
    slots.check([])


def test_the_slot_freed_last_is_given_next():
    """Two slots, one freed. (SL-2)"""
    slots = StateSlots(2)
    first, second = slots.take(), slots.take()
    slots.release(first)
    assert slots.take() == first
    slots.release(first)
    slots.release(second)
    assert [slots.take(), slots.take()] == [second, first]


def test_a_slot_spans_a_row_for_each_draft():
    """256 slots of 4 rows: the last row is 1023. (SL-6)"""
    assert rows_base(255, 3) + 3 == 1023
    assert [rows_base(slot, 0) for slot in (0, 3, NO_SLOT)] == [0, 3, -1]


def test_a_stateless_row_has_no_slot():
    """A slot-3 request and a stateless one. (SL-4)"""
    assert row_bases([3, NO_SLOT], 0).tolist() == [3, -1]
    assert row_bases([3, NO_SLOT], 3).tolist() == [12, -1]
    assert row_bases([], 0).dtype == np.int32


# Checkpoints


def test_checkpoints_never_take_what_a_request_may_have():
    """They count as free and give way, the oldest first, when nothing else is."""
    slots = StateSlots(3)
    own = slots.take()
    old, new = slots.checkpoint(10, 1), slots.checkpoint(11, 1)
    assert (slots.free, slots.at(10), slots.at(11), slots.at(12)) == (2, old, new, None)
    assert slots.take() == old
    assert (slots.free, slots.at(10), slots.at(11)) == (1, None, new)
    assert slots.take() == new
    assert (slots.free, slots.take()) == (0, None)
    slots.check([own, old, new])


def test_a_vacant_slot_goes_before_a_checkpoint():
    """A checkpoint lives as long as there is room for it."""
    slots = StateSlots(2)
    kept = slots.checkpoint(10, 1)
    other = slots.take()
    slots.release(other)
    assert (slots.take(), slots.at(10)) == (other, kept)


def test_a_new_checkpoint_takes_the_place_of_the_oldest():
    """Where no slot is vacant; none is made where requests hold all, or where the block has one."""
    slots = StateSlots(2)
    slots.take()
    slot = slots.checkpoint(10, 1)
    assert slots.checkpoint(10, 1) is None and slots.at(10) == slot
    assert (slots.checkpoint(11, 1), slots.at(10)) == (slot, None)
    slots.take()
    assert slots.checkpoint(12, 1) is None and slots.free == 0


def test_a_request_may_be_given_the_slot_of_the_checkpoint_it_resumes_from():
    """Then its state is there already, and the checkpoint is no more: nobody else reads what it writes."""
    slots = StateSlots(1)
    checkpoint = slots.checkpoint(10, 1)
    assert (slots.at(10), slots.take(), slots.at(10)) == (checkpoint, checkpoint, None)


def test_checkpoints_die_with_their_blocks():
    """Blocks without one are of no interest; clear drops all."""
    slots = StateSlots(4)
    for block in (10, 11, 12):
        slots.checkpoint(block, 1)
    slots.drop([11, 99])
    assert [slots.at(block) is None for block in (10, 11, 12)] == [False, True, False]
    slots.clear()
    assert (slots.at(10), slots.at(12), slots.free) == (None, None, 4)
    slots.check([])


def test_checkpoints_are_known_by_their_depth():
    """Which are there, each with the place of its block in its chain, whatever has come and gone."""
    slots = StateSlots(2)
    slots.checkpoint(10, 3)
    slots.checkpoint(12, 1)
    assert sorted(slots.checkpoints()) == [(1, 12), (3, 10)]
    slots.checkpoint(11, 2)
    assert sorted(slots.checkpoints()) == [(1, 12), (2, 11)]
    slots.drop([12])
    assert list(slots.checkpoints()) == [(2, 11)]


def test_check_finds_what_is_wrong():
    """A slot that is lost, and one that is held twice."""
    slots = StateSlots(2)
    slot = slots.take()
    slots.check([slot])
    for held in ([], [slot, slot], [1 - slot, slot]):
        with pytest.raises(AssertionError):
            slots.check(held)


blocks = st.integers(0, 5)
events = st.one_of(
    st.tuples(st.sampled_from(["take", "release", "clear"])),
    st.tuples(st.sampled_from(["checkpoint", "drop"]), blocks),
)


@settings(max_examples=200, deadline=None)
@given(count=st.integers(0, 4), script=st.lists(events, max_size=60))
def test_admission_never_notices_checkpoints(count, script):
    """Whatever is checkpointed: a request gets a slot unless others hold all, and no slot is in two places."""
    slots, held = StateSlots(count), []
    for what, *values in script:
        match what:
            case "take":
                slot = slots.take()
                assert (slot is None) == (len(held) == count)
                held += [] if slot is None else [slot]
            case "release" if held:
                slots.release(held.pop(0))
            case "clear":
                slots.clear()
            case "checkpoint":
                slot = slots.checkpoint(*values, 1)
                assert slot is None or (slots.at(*values) == slot and slot not in held)
            case "drop":
                slots.drop(values)
                assert slots.at(*values) is None
        assert slots.free == count - len(held)
        slots.check(held)


# Where a prefill pauses


@pytest.mark.parametrize(
    "position, prompt, interval, wishes, cut",
    [
        (0, 8191, 8192, [], None),
        (0, 8192, 8192, [], 8192),
        (0, 20000, 8192, [], 8192),
        (8191, 20000, 8192, [], 8192),
        (8192, 20000, 8192, [], 16384),
        (16384, 20000, 8192, [], None),
        (0, 100, 8192, [64, 32], 32),
        (32, 100, 8192, [64, 32], 64),
        (64, 100, 8192, [64, 32], None),
        (0, 100, 8192, [101], None),
        (0, 100, 8192, [100], 100),
        (0, 20000, 8192, [9000], 8192),
        (0, 20000, 0, [], None),
        (0, 20000, 0, [9000], 9000),
    ],
)
def test_where_a_prefill_pauses(position, prompt, interval, wishes, cut):
    """On the grid and where somebody asked for it, within the prompt."""
    assert next_cut(position, prompt, interval, wishes) == cut


@given(prompt=st.integers(1, 300), interval=st.integers(0, 50), wishes=st.sets(st.integers(0, 350), max_size=5))
def test_a_prefill_pauses_at_each_place_once(prompt, interval, wishes):
    """Going from cut to cut visits exactly the grid and the wishes, in order."""
    cuts, position = [], 0
    while (cut := next_cut(position, prompt, interval, wishes)) is not None:
        cuts.append(position := cut)
    grid = range(interval, prompt + 1, interval) if interval else ()
    assert cuts == sorted({*grid, *(wish for wish in wishes if 0 < wish <= prompt)})
