"""From columns to events: a run is an event, the root is no parent, and what does not fit is a bad message."""

import numpy as np
import pytest

from fourstroke.common.errors import BadMessage
from fourstroke.common.types import KvKind
from fourstroke.ipc.event_columns import events_of
from fourstroke.ipc.events import Cleared, Removed, Stored
from fourstroke.ipc.messages import KvChange, KvKey

ROOT = bytes(32)
A, B, C, D = (bytes([number]) * 32 for number in range(1, 5))
TOKENS = np.arange(8, dtype=np.int32)


def stored(counts: list[int], parents: bytes, keys: tuple[KvKey, ...] = ()) -> KvChange:
    column = np.array(counts, np.int32).tobytes()
    return KvChange(KvKind.STORED, A + B + C + D, column, parents, TOKENS.tobytes(), keys)


def test_each_run_is_an_event():
    """With its parent, if that is not the root, and its tokens."""
    first, second = events_of(stored([3, 1], ROOT + A), ROOT)
    assert first == Stored((A, B, C), None, TOKENS[:6].tobytes(), 2)
    assert second == Stored((D,), A, TOKENS[6:].tobytes(), 2)


def test_keys_are_told_by_block_and_untagged():
    """An adapter with its name, an image with its place, a salt with the prefix that is asked for."""
    keys = (KvKey(0, "lora", "name"), KvKey(0, "cache_salt", "s1"), KvKey(1, "lora", "name"), KvKey(1, "mm", "cat", -3))
    first, second = events_of(stored([2, 2], ROOT + ROOT, keys), ROOT, "prefix:")
    assert (first.keys, first.adapter) == ((("name", "prefix:s1"), ("name", ("cat", -3))), "name")
    assert (second.keys, second.adapter) == (None, None)
    (digest,) = events_of(stored([4], ROOT, (KvKey(0, "prompt_embeds", digest=b"xy"),)), ROOT)
    assert digest.keys == ((b"xy",), None, None, None)


def test_removed_and_cleared():
    assert events_of(KvChange(KvKind.REMOVED, B + A), ROOT) == [Removed((B, A))]
    assert events_of(KvChange(KvKind.CLEARED), ROOT) == [Cleared()]


@pytest.mark.parametrize("counts", [[3], [5], [2, 3], [4, 0], [5, -1]])
def test_runs_that_are_not_the_blocks(counts):
    """A message may come from anywhere: BadMessage and nothing else."""
    with pytest.raises(BadMessage):
        events_of(stored(counts, ROOT * len(counts)), ROOT)
