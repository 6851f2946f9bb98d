"""The token ring against a list: what was written comes out, in order, once, and it is full when it is full."""

from collections import deque

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fourstroke.common.errors import BadMessage
from fourstroke.ipc.ring import TokenRing, ring_bytes


def both_ends(capacity):
    """Writer's and reader's view of one memory."""
    memory = bytearray(ring_bytes(capacity))
    return TokenRing(memory), TokenRing(memory)


def run(first, length):
    return np.arange(first, first + length, dtype=np.int32)


def places(position, length, capacity):
    """The places of a run in the ring."""
    return {(position + offset) % capacity for offset in range(length)}


@given(st.integers(1, 12), st.lists(st.integers(1, 12) | st.just("take"), max_size=60))
def test_equals_a_list(capacity, steps):
    """Any order of writes and takes: runs come out whole, in order and once; one fits unless its place is in use."""
    writer, reader = both_ends(capacity)
    unread: deque[tuple[int, list[int]]] = deque()
    released = written = 0
    for number, step in enumerate(steps):
        if step == "take" and unread:
            position, tokens = unread.popleft()
            assert reader.take(position, len(tokens)).tolist() == tokens
            released = position + len(tokens)
        elif step != "take" and step <= capacity:
            tokens = run(100 * number, step)
            place = written % capacity if written % capacity + step <= capacity else 0
            position = writer.write(tokens)
            in_use = places(released, written - released, capacity)
            assert (position is None) == bool(places(place, step, capacity) & in_use)
            if position is not None:
                assert position % capacity == place
                unread.append((position, tokens.tolist()))
                written = position + step
        assert (reader.used, writer.used) == (written - released, written - released)
    for position, tokens in unread:
        assert reader.take(position, len(tokens)).tolist() == tokens


@given(st.integers(1, 12), st.lists(st.integers(0, 12), max_size=20))
def test_empty_ring_has_room(capacity, lengths):
    """Wherever an empty ring stands, any run that is not longer than the ring fits."""
    writer, reader = both_ends(capacity)
    for length in [length for length in lengths if length <= capacity]:
        position = writer.write(run(0, length))
        assert position is not None
        assert reader.take(position, length).tolist() == list(range(length))
        assert writer.used == 0


def test_exact_capacity():
    """A run of the whole capacity fits, and nothing beside it."""
    writer, reader = both_ends(4)
    assert writer.write(run(0, 4)) == 0
    assert writer.write(run(0, 1)) is None
    assert reader.take(0, 4).tolist() == [0, 1, 2, 3]
    assert writer.write(run(4, 4)) == 4


def test_longer_than_the_ring():
    """Such a run never fits, not even when the ring is empty."""
    writer, _ = both_ends(4)
    assert writer.write(run(0, 5)) is None


def test_gap_at_the_end_is_released_with_the_run_behind_it():
    """Places left free at the end of the ring count as used until the next run is taken."""
    writer, reader = both_ends(8)
    assert writer.write(run(0, 6)) == 0
    reader.take(0, 3)
    assert writer.write(run(6, 3)) == 8
    assert writer.used == 8
    reader.take(3, 3)
    assert reader.take(8, 3).tolist() == [6, 7, 8]
    assert writer.used == 0


def test_skipped_runs_are_released():
    """A reader that missed a message frees the missed run with the next one."""
    writer, reader = both_ends(8)
    writer.write(run(0, 3))
    assert reader.take(writer.write(run(3, 2)), 2).tolist() == [3, 4]
    assert writer.used == 0


@pytest.mark.parametrize(
    "position, count",
    [(0, 2), (3, 3), (6, 1), (-1, 1), (3, -1), (2**63 - 1, 1), (-(2**63), 2**63), (3, 2**63 - 1)],
    ids=["taken", "too-long", "behind", "negative", "negative-count", "far", "very-negative", "huge-count"],
)
def test_run_that_is_not_there(position, count):
    """A place that was never written, or was taken before, is a bad message and releases nothing."""
    writer, reader = both_ends(8)
    writer.write(run(0, 3))
    writer.write(run(3, 2))
    reader.take(0, 3)
    with pytest.raises(BadMessage):
        reader.take(position, count)
    assert reader.used == 2
    assert reader.take(3, 2).tolist() == [3, 4]


def test_run_across_the_end():
    """No message can ask for a run that goes over the end of the ring."""
    writer, reader = both_ends(8)
    writer.write(run(0, 6))
    reader.take(0, 5)
    writer.write(run(6, 4))
    with pytest.raises(BadMessage, match="cross the end"):
        reader.take(5, 5)


def test_what_was_taken_is_a_copy():
    """Tokens that were taken do not change when their place is written again."""
    writer, reader = both_ends(4)
    taken = reader.take(writer.write(run(0, 4)), 4)
    writer.write(run(10, 4))
    assert taken.tolist() == [0, 1, 2, 3]


def test_new_reader_goes_on():
    """Both counters lie in the memory: an end that starts again goes on where the old one was."""
    memory = bytearray(ring_bytes(8))
    TokenRing(memory).write(run(0, 3))
    TokenRing(memory).take(0, 3)
    assert TokenRing(memory).write(run(3, 2)) == 3
    assert TokenRing(memory).take(3, 2).tolist() == [3, 4]


@pytest.mark.parametrize("at", [0, 1], ids=["writer", "reader"])
def test_forget(at):
    """A process that takes the place of another at either end has all the room, and nobody gets what was written for
    or by the one before.
    """
    writer, reader = ends = both_ends(8)
    old = writer.write(run(0, 5))
    ends[at].forget()
    assert writer.used == 0
    new = writer.write(run(5, 6))
    with pytest.raises(BadMessage):
        reader.take(old, 5)
    assert reader.take(new, 6).tolist() == list(range(5, 11))
