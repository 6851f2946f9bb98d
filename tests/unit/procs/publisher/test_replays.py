"""Replays: every batch from where it was asked for, or the state in its place, whatever other readers do."""

from __future__ import annotations

import pytest

from fourstroke.ipc.event_codec import decode_batch
from fourstroke.ipc.events import Cleared, Removed, Stored
from fourstroke.ipc.replay import answer_frames, end_frames
from fourstroke.procs.publisher import answers as answers_module
from fourstroke.procs.publisher import replays as replays_module
from fourstroke.procs.publisher.replays import MAX_READERS, MAX_REQUESTS

from ...ipc.histories import Life
from .made import Made, numbers, state_after


def lived(made: Made, batches: int, seed: int = 0) -> Made:
    """A publisher after so many batches of a random life, batch 0 included."""
    life = Life(seed)
    while made.history.next < batches:
        made.stream.take(list(life.events(2)))
    return made


@pytest.mark.parametrize("form", ["map", "array"])
def test_from_the_middle(form):
    """19 were published: from 10 come 10 to 18 and the end, with the bytes that were published."""
    made = lived(Made(form=form), 19)
    assert made.replay(10) == made.live.sent[10:]
    assert made.replay(18) == made.live.sent[18:]
    assert made.replay(19) == made.replay(2**63) == []


@pytest.mark.parametrize("form, ends", [("topic", [b"", b"", b"\xff" * 8, b""]), ("legacy", [b"", b"\xff" * 8, b""])])
def test_both_shapes(form, ends):
    """With the topic and without; the end has no payload."""
    made = Made(replay_form=form)
    made.router.ask(b"x", 0)
    made.replays.run()
    number, payload = made.live.sent[0]
    assert made.router.answers[b"x"] == [answer_frames(form, b"t", number, payload), ends]
    assert end_frames(form) == ends


@pytest.mark.parametrize("form", ["map", "array"])
def test_older_than_the_ring(form):
    """110 published, 100 kept: from 0 come 110 without a hole, and lead to the state of who was there all the time."""
    made = lived(Made(capacity=100, form=form), 110)
    for start in (0, 5, 9, 10, 11):
        answer = made.replay(start)
        assert numbers(answer) == list(range(start, 110))
        assert start > 10 or state_after(answer) == state_after(made.live.sent)
    snapshot = decode_batch(dict(made.replay(0))[9])
    assert snapshot.events[0] == Cleared()
    assert all(isinstance(event, Stored) for event in snapshot.events[1:])
    assert [decode_batch(payload).events for _, payload in made.replay(0)[:9]] == [()] * 9
    assert made.row["kv_event_snapshot_replies"] == 5
    assert made.row["kv_event_ring_oldest"] == 10


@pytest.mark.parametrize("form", ["map", "array"])
def test_the_state_after_any_history(form):
    """50 random lives and rings of any size: whoever asks from 0 at any time ends with the exact state."""
    for seed in range(50):
        made, life = Made(capacity=1 + seed % 7, form=form), Life(seed)
        for events in range(1, 40):
            made.stream.take(list(life.events(1 + events % 3)))
            if events % 13 == 0:
                answer = made.replay(0)
                assert numbers(answer) == list(range(made.history.next))
                assert state_after(answer) == state_after(made.live.sent)


def test_with_far_too_many_missing_it_begins_with_the_snapshot(monkeypatch):
    monkeypatch.setattr(answers_module, "MAX_EMPTY", 20)
    made = lived(Made(capacity=5), 40)
    assert numbers(made.replay(0)) == list(range(34, 40))
    assert numbers(made.replay(15)) == list(range(15, 40))


def taken(made: Made, name: bytes) -> list[tuple[int, bytes]]:
    """The whole answer of a reader who takes a few messages at a time."""
    got = []
    while len(made.replays):
        got += made.router.answers.pop(name)
        made.replays.run()
    got += made.router.answers.pop(name)
    return [(int.from_bytes(frames[2], "big"), frames[3]) for frames in got[:-1]]


@pytest.mark.parametrize("start, last", [(5, 15), (0, 60)])
def test_an_answer_is_fixed_when_its_first_batch_is_due(start, last):
    """What is published from then on is not in it, and what is forgotten from then on still is; before that it holds
    nothing, and goes on behind numbers without batches with the state of that moment.
    """
    made = lived(Made(capacity=10, room=3), 15)
    made.router.ask(b"x", start)
    made.replays.run()
    lived(made, 60, seed=9)
    batches = taken(made, b"x")
    assert numbers(batches) == list(range(start, last))
    assert start or state_after(batches) == state_after(made.live.sent)
    assert start == 0 or batches == made.live.sent[5:15]


def test_a_reader_who_is_too_slow(monkeypatch):
    """No more than a second ring is held for the slowest, who is given up and counted; others are served."""
    monkeypatch.setattr(replays_module, "MOST_BEHIND", 20)
    made = lived(Made(capacity=10, room=3), 10)
    for name in (b"slow", b"quick"):
        made.router.ask(name, 0)
    for _ in range(50):
        made.replays.run()
        made.router.answers.pop(b"quick", None)
        lived(made, made.history.next + 1, seed=9)
    assert made.history.oldest > 30
    assert (len(made.replays), made.row["kv_event_replay_dropped"]) == (0, 1)


def test_requests_that_wait_cost_nothing(monkeypatch):
    """However many are heard in a turn, the ring is only looked through for those that are answered now."""
    made = lived(Made(capacity=100, room=0), 90)
    looked = []
    since = made.history.since
    monkeypatch.setattr(made.history, "since", lambda start: looked.append(start) or since(start))
    for number in range(100):
        made.router.ask(b"%d" % (number % 10), number % 50)
    made.replays.run()
    assert made.row["kv_event_replay_requests"] == 100
    assert len(looked) == 10


def test_nobody_waits_for_a_reader_who_takes_nothing():
    """16 readers, one of whom takes nothing: the others have everything; he is given up after 30 s and counted."""
    made = lived(Made(room=1000), 50)
    made.router.answers[b"0"] = [[b""]] * 1000
    for name in range(16):
        made.router.ask(b"%d" % name, 0)
    for _ in range(10):
        made.replays.run()
    assert [len(made.router.answers[b"%d" % name]) for name in range(1, 16)] == [51] * 15
    assert (len(made.replays), made.replays.can_go_on) == (1, False)
    made.now += 30
    made.replays.run()
    assert len(made.replays) == 1
    made.now += 1
    made.replays.run()
    assert (len(made.replays), made.row["kv_event_replay_dropped"]) == (0, 1)


def test_a_reader_who_has_gone_is_forgotten():
    made = lived(Made(), 50)
    made.router.gone.add(b"x")
    made.router.ask(b"x", 0)
    made.replays.run()
    assert (len(made.replays), made.row["kv_event_replay_dropped"]) == (0, 0)


def test_replays_work_in_slices():
    """However much there is to answer, a turn ends after its time, and the next one goes on."""
    made = lived(Made(capacity=5000), 4000)
    made.tick_s = replays_module.SLICE_S / 20
    made.router.ask(b"x", 0)
    sent = []
    for _ in range(5):
        made.replays.run()
        sent.append(len(made.router.answers[b"x"]))
    assert all(0 < later - earlier <= 20 for earlier, later in zip([0, *sent], sent, strict=False))


def test_a_snapshot_is_made_in_slices_and_shared():
    """One event of work at a time, for all who wait for it; nothing is forgotten meanwhile."""
    made = lived(Made(capacity=10), 300)
    first, second = made.history.snapshot(1.0), made.history.snapshot(2.0)
    assert first is second
    oldest = made.history.oldest
    first.work()
    lived(made, 301, seed=5)
    assert (first.payload, made.history.oldest) == (b"", oldest)
    while not first.payload:
        first.work()
    lived(made, 330, seed=6)
    assert made.history.oldest > oldest
    assert made.history.snapshot(3.0) is not first


def test_a_snapshot_that_nobody_waits_for_any_more():
    """Its reader has gone: it is finished beside the batches that come, and then they are forgotten as before."""
    made = lived(Made(capacity=10), 300)
    made.history.snapshot(1.0).work()
    lived(made, 500, seed=5)
    assert made.history.oldest == 490
    answer = made.replay(0)
    assert state_after(answer) == state_after(made.live.sent)


@pytest.mark.parametrize(
    "frames",
    [[], [b"x"], [b"x", b""], [b"x", b"", bytes(7)], [b"x", b"", bytes(9)], [b"x", b"y", bytes(8)], [b"x"] * 4],
)
def test_requests_of_another_shape(frames):
    """Counted and ignored."""
    made = Made()
    made.router.requests.append(frames)
    made.replays.run()
    assert (made.row["kv_event_bad_requests"], made.row["kv_event_replay_requests"]) == (1, 0)
    assert made.router.answers == {}


def test_a_flood_of_requests_is_bounded():
    """Of one reader and of many: what is too much is counted, and who was there before is served."""
    made = lived(Made(room=0), 20)
    for _ in range(100):
        made.router.ask(b"x", 0)
    made.replays.run()
    assert not made.router.requests
    assert made.row["kv_event_bad_requests"] == 100 - MAX_REQUESTS
    for name in range(1000):
        made.router.ask(b"%d" % name, 0)
    while made.router.requests:
        made.replays.run()
    assert len(made.replays) == MAX_READERS
    assert made.row["kv_event_bad_requests"] == 100 - MAX_REQUESTS + 1001 - MAX_READERS


def test_requests_of_one_reader_are_answered_in_order():
    """One after the other, each with its end."""
    made = lived(Made(), 6)
    made.router.ask(b"x", 4)
    made.router.ask(b"x", 5)
    made.replays.run()
    assert [frames[2][-1] for frames in made.router.answers[b"x"]] == [4, 5, 255, 5, 255]


def test_removed_blocks_leave_the_snapshot():
    """What is not there any more is not told to who comes late."""
    made = Made(capacity=1)
    stored = Stored((b"a" * 32, b"b" * 32), None, bytes(32), 4)
    made.stream.take([stored])
    made.stream.take([Removed((b"b" * 32,))])
    made.stream.take([Removed((b"x" * 32,))])
    (cleared, left) = decode_batch(dict(made.replay(0))[2]).events
    assert (cleared, left.digests) == (Cleared(), (b"a" * 8,))
