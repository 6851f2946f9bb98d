"""Numbering, heartbeats, merging, and what happens to a batch that cannot be encoded."""

from __future__ import annotations

from fourstroke.ipc.event_codec import decode_batch, encode_batch
from fourstroke.ipc.events import Cleared, Removed, Stored
from fourstroke.procs.publisher import stream as stream_module

from .made import Made, numbers, state_after

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


def test_cleared_is_never_kept_back():
    """Not even before the first batch behind batch 0, when what it makes void still waits for the interval."""
    made = Made(min_interval_s=100.0)
    made.stream.take([Cleared()])
    made.stream.take([ONE])
    assert len(made.live.sent) == 1
    made.stream.take([Cleared()])
    assert state_after(made.live.sent) == {}
    assert events_of(made.live.sent[-1][1])[-1] is Cleared
    made.stream.take([ONE])
    made.stream.take([Cleared(), ONE])
    assert events_of(made.live.sent[-1][1]) == [Stored, Cleared, Stored]


def test_what_waits_for_the_interval_is_bounded(monkeypatch):
    """More blocks than that are sent early."""
    monkeypatch.setattr(stream_module, "MOST_WAITING_BLOCKS", 10)
    made = Made(min_interval_s=100.0)
    for _ in range(10):
        made.stream.take([ONE])
    assert len(made.live.sent) == 1
    for _ in range(12):
        made.stream.take([ONE])
    assert [len(events_of(payload)) for _, payload in made.live.sent] == [1, 11, 11]


def chained(*names: bytes, behind: bytes | None = None) -> Stored:
    digests = tuple(name * 32 for name in names)
    return Stored(digests, behind and behind * 32, bytes(16 * len(names)), 4)


def poisoned(ts, events, rank, form):
    """An encoder that takes offence at a block."""
    if any(isinstance(event, Stored) and b"x" * 32 in event.digests for event in events):
        raise ValueError("no")
    return encode_batch(ts, events, rank, form)


def test_what_cannot_be_encoded():
    """At first the batch is sent empty and the whole cache is wished for, once; when it fails again it is left out
    with what stands behind it, and readers are right about all the rest.
    """
    made = Made(encode=poisoned)
    made.stream.take([chained(b"a"), chained(b"x"), chained(b"b")])
    assert events_of(made.live.sent[1][1]) == []
    assert (made.row["kv_event_encode_errors"], made.stream.wishes_all) == (1, 1)
    made.stream.take([chained(b"y", behind=b"x"), Removed((b"a" * 32,))])
    assert len(made.live.sent) == 2
    made.stream.take([Removed((b"b" * 32,)), Cleared(), chained(b"a"), chained(b"x", b"y"), chained(b"b")])
    made.stream.take([chained(b"c", behind=b"b"), chained(b"z", behind=b"y")])
    assert (made.row["kv_event_encode_errors"], made.stream.wishes_all) == (2, 1)
    assert {digest[:1] for digest in state_after(made.live.sent)["GPU"]} == {b"a", b"b", b"c"}
    made.stream.take([Removed((b"z" * 32, b"c" * 32)), Removed((b"y" * 32, b"x" * 32))])
    (gone,) = decode_batch(made.live.sent[-1][1]).events
    assert gone == Removed((b"c" * 8,))
    made.stream.take([chained(b"y", b"z")])
    assert {digest[:1] for digest in state_after(made.live.sent)["GPU"]} == {b"a", b"b", b"y", b"z"}
    assert state_after(made.replay(0)) == state_after(made.live.sent)
    assert numbers(made.live.sent) == list(range(6))


def test_an_encoder_that_fails_for_a_while():
    """Twice: two errors, nothing raised, each number used."""
    failures = iter([False, True, True])

    def encode(ts, events, rank, form):
        if next(failures, False):
            raise ValueError("no")
        return encode_batch(ts, events, rank, form)

    made = Made(encode=encode)
    for _ in range(3):
        made.stream.take([Cleared(), ONE])
    assert numbers(made.live.sent) == [0, 1, 2, 3]
    assert made.row["kv_event_encode_errors"] == 2
