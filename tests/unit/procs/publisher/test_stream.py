"""Numbering, heartbeats, merging, and what happens to a batch that cannot be encoded."""

from __future__ import annotations

from fourstroke.ipc.event_codec import decode_batch, encode_batch
from fourstroke.ipc.events import Cleared, Removed, Stored

from .made import Made, numbers

ONE = Stored((b"1" * 32,), None, bytes(16), 4)
GONE = Removed(ONE.digests)


def events_of(payload: bytes) -> list[type]:
    return [type(event) for event in decode_batch(payload).events]


def test_numbers_begin_at_0_with_cleared():
    """Ten batches have 0 to 9, and the first one says that nothing is cached."""
    made = Made()
    for _ in range(9):
        made.stream.take([ONE, GONE])
    assert numbers(made.live.sent) == list(range(10))
    assert events_of(made.live.sent[0][1]) == [Cleared]
    assert (made.row["kv_event_batches"], made.row["kv_event_events"], made.row["kv_event_seq"]) == (10, 19, 10)
    assert made.row["kv_event_bytes"] == sum(len(payload) for _, payload in made.live.sent)


def test_cleared_is_not_said_twice_at_the_beginning():
    """The scheduler's first word is what batch 0 has said; later it is said each time."""
    made = Made()
    made.stream.take([Cleared()])
    assert len(made.live.sent) == 1
    made.stream.take([Cleared(), ONE])
    assert events_of(made.live.sent[1][1]) == [Stored]
    made.stream.take([Cleared()])
    assert events_of(made.live.sent[2][1]) == [Cleared]


def test_heartbeat():
    """After so many idle seconds an empty batch with a number of its own; none before, none when it is off."""
    made = Made(heartbeat_s=5.0)
    made.now += 4.9
    made.stream.tick()
    assert len(made.live.sent) == 1
    made.now += 0.2
    made.stream.tick()
    made.stream.tick()
    assert [(number, events_of(payload)) for number, payload in made.live.sent[1:]] == [(1, [])]
    assert made.stream.next_due_s == made.now + 5
    silent = Made(heartbeat_s=0)
    assert silent.stream.next_due_s == float("inf")


def test_batches_are_merged_within_the_interval():
    """Events keep their order, and wait no longer than the interval."""
    made = Made(min_interval_s=1.0)
    made.stream.take([ONE])
    made.stream.take([GONE])
    made.stream.tick()
    assert len(made.live.sent) == 1
    made.now = made.stream.next_due_s
    made.stream.tick()
    assert events_of(made.live.sent[1][1]) == [Stored, Removed]
    assert len(made.live.sent) == 2
    made.stream.take([ONE])
    made.stream.flush()
    assert numbers(made.live.sent) == [0, 1, 2]


def test_what_cannot_be_encoded():
    """Twice: two errors, nothing raised, two empty batches in its places, and the whole cache is wished for."""
    failures = iter([False, True, True, False])

    def encode(ts, events, rank, form):
        if next(failures):
            raise ValueError("no")
        return encode_batch(ts, events, rank, form)

    made = Made(encode=encode)
    for _ in range(3):
        made.stream.take([ONE])
    assert [(number, events_of(payload)) for number, payload in made.live.sent[1:]] == [(1, []), (2, []), (3, [Stored])]
    assert (made.row["kv_event_encode_errors"], made.stream.wishes_all) == (2, 2)
