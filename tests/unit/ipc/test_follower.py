"""Following a stream: every batch once and in order, whatever is late, missing, doubled, garbage or begun anew."""

from __future__ import annotations

import random

import pytest

from fourstroke.ipc import follower as follower_module
from fourstroke.ipc.event_codec import encode_batch
from fourstroke.ipc.events import Cleared, Removed
from fourstroke.ipc.follower import TRIES, Follower, Lost, Received, Restarted, Unreadable
from fourstroke.ipc.replay import answer_frames, end_frames, live_frames

from .histories import Life


def payload(ts: float, *events) -> bytes:
    return encode_batch(ts, events, 0, "map")


class Publisher:
    """A stream and its past: batch i has time `epoch` + i."""

    def __init__(self, epoch: float = 1000.0, form: str = "topic") -> None:
        self.payloads: list[bytes] = []
        self._epoch, self._form = epoch, form
        self.publish(Cleared())

    def publish(self, *events) -> int:
        self.payloads.append(payload(self._epoch + len(self.payloads), *events))
        return len(self.payloads) - 1

    def live(self, number: int) -> list[bytes]:
        return live_frames(b"", number, self.payloads[number])

    def answer(self, start: int, end: int | None = None) -> list[list[bytes]]:
        """The whole answer to a request that came when there were `end` batches."""
        found = [answer_frames(self._form, b"", at, one) for at, one in enumerate(self.payloads[:end]) if at >= start]
        return [*found, end_frames(self._form)]


def hear(follower: Follower, answer: list[list[bytes]]) -> list:
    return [item for frames in answer for item in follower.replayed(frames)]


def numbers(items: list) -> list[int]:
    assert all(isinstance(item, Received) for item in items), items
    return [item.number for item in items]


def started(publisher: Publisher) -> Follower:
    """A follower who knows the past."""
    follower = Follower(replays=True)
    assert follower.requests == [0]
    follower.requests.clear()
    assert numbers(hear(follower, publisher.answer(0))) == list(range(len(publisher.payloads)))
    return follower


@pytest.mark.parametrize("form", ["topic", "legacy"])
def test_the_past_comes_before_what_is_live(form):
    """Live batches that come during the first replay wait for it; what it has brought is not told twice."""
    publisher = Publisher(form=form)
    for _ in range(4):
        publisher.publish()
    follower = Follower(replays=True)
    assert follower.live(publisher.live(3)) == follower.live(publisher.live(4)) == []
    items = hear(follower, publisher.answer(0, 4))
    assert numbers(items) == [0, 1, 2, 3, 4]
    assert [item.replayed for item in items] == [True] * 4 + [False]
    assert follower.live(publisher.live(publisher.publish()))[0].number == 5


def test_live_batches_that_the_replay_had_already():
    publisher = Publisher()
    publisher.publish()
    follower = started(publisher)
    assert follower.live(publisher.live(0)) == follower.live(publisher.live(1)) == []
    assert numbers(follower.live(publisher.live(publisher.publish()))) == [2]


def test_a_gap_is_filled():
    """What is missing is asked for, with the last batch that is known in front; later live ones come behind it."""
    publisher = Publisher()
    follower = started(publisher)
    for _ in range(5):
        publisher.publish()
    assert follower.live(publisher.live(3)) == []
    assert follower.requests == [0]
    assert follower.live(publisher.live(4)) == []
    assert numbers(hear(follower, publisher.answer(0, 4))) == [1, 2, 3, 4]
    assert numbers(follower.live(publisher.live(5))) == [5]


def test_a_gap_that_cannot_be_filled_is_a_loss():
    """Where there is no replay, or it does not have the batches, or it does not come."""
    publisher = Publisher()
    for _ in range(5):
        publisher.publish(Removed((bytes(8),)))
    alone = Follower(replays=False)
    assert alone.live(publisher.live(2))[0] == Lost(0, 2)
    assert numbers(alone.live(publisher.live(3))) == [3]
    poor = started(Publisher())
    poor.live(publisher.live(4))
    assert hear(poor, publisher.answer(3, 4))[0] == Lost(1, 3)


def test_an_answer_that_does_not_come():
    """Is asked for again, some times; only then what is missing is a loss, and the stream goes on."""
    publisher = Publisher()
    follower = started(publisher)
    for _ in range(4):
        publisher.publish(Removed((bytes(8),)))
    follower.live(publisher.live(4))
    for _ in range(TRIES - 1):
        follower.requests.clear()
        assert follower.gave_up() == []
        assert (follower.requests, follower.renew) == ([0], True)
    assert follower.replayed(publisher.answer(0)[0]) == []
    assert [follower.gave_up() for _ in range(TRIES - 1)] == [[]] * (TRIES - 1)
    assert [type(item) for item in follower.gave_up()] == [Lost, Received]
    assert not follower.asking


def test_a_doubt_without_an_answer_is_not_forgotten():
    """Nobody says that it is the same process: what was known is void, and only what comes then is believed."""
    publisher = Publisher()
    follower = started(publisher)
    follower.doubt()
    items = [item for _ in range(TRIES) for item in follower.gave_up()]
    assert items == [Restarted()]
    assert follower.requests[-1] == 0
    publisher.publish(Removed((bytes(8),)))
    assert follower.live(publisher.live(1)) == []
    assert next(item for _ in range(TRIES) for item in follower.gave_up()) == Lost(0, 1)


def test_a_snapshot_is_no_loss():
    """An answer that begins late, with a batch that says first that nothing is there, has everything."""
    follower = Follower(replays=True)
    answer = [
        answer_frames("topic", b"", 5_000_000, payload(1.0, Cleared(), Removed((bytes(8),)))),
        end_frames("topic"),
    ]
    assert numbers(hear(follower, answer)) == [5_000_000]


@pytest.mark.parametrize("seen", [0, 1, 4])
def test_another_process_with_less(seen):
    """A live batch with a number that was there before, and a later time: what was known is void, all is asked for."""
    follower = started(Publisher())
    for number in range(1, 8):
        follower.live(live_frames(b"", number, payload(1000 + number)))
    publisher = Publisher(epoch=5000.0)
    for _ in range(5):
        publisher.publish()
    assert follower.live(publisher.live(seen)) == [Restarted()]
    assert (follower.requests, follower.renew) == ([0], True)
    assert numbers(hear(follower, publisher.answer(0))) == list(range(6))


def test_another_process_with_more():
    """Its first batch that is heard looks like a gap: the replay shows that the last known batch is not its own."""
    follower = started(Publisher())
    publisher = Publisher(epoch=5000.0)
    for _ in range(5):
        publisher.publish()
    assert follower.live(publisher.live(4)) == []
    assert follower.requests == [0]
    assert follower.replayed(publisher.answer(0)[0]) == [Restarted()]


def kept(number: int) -> bytes:
    return payload(1000.0 + number, Removed((bytes(8),)))


@pytest.mark.parametrize("oldest", range(3, 8))
@pytest.mark.parametrize("in_doubt", [False, True])
def test_what_is_missing_is_not_kept_any_more(oldest, in_doubt):
    """It is the same process: its whole state is told in the place of what is missing, and that is neither a restart
    nor a loss. Where the ring begins before what is known, all that is missing is there.
    """
    follower = started(Publisher())
    for number in range(1, 5):
        follower.live(live_frames(b"", number, kept(number)))
    follower.doubt() if in_doubt else follower.live(live_frames(b"", 8, kept(8)))
    assert follower.requests[-1] == 4
    instead = [payload(5000.0)] * (oldest - 1) + [payload(5000.0, Cleared())]
    past = [*instead, *map(kept, range(oldest, 9))]
    answer = [answer_frames("topic", b"", number, past[number]) for number in range(4, 9)]
    items = hear(follower, [*answer, end_frames("topic")])
    assert numbers(items) == list(range(4 if oldest == 5 else 5, 9))
    assert numbers(follower.live(live_frames(b"", 9, kept(9)))) == [9]


def test_another_process_that_was_idle():
    """Its heartbeats look like batches that are not kept any more, until it tells something else than a whole state."""
    follower = started(Publisher())
    for number in range(1, 5):
        follower.live(live_frames(b"", number, kept(number)))
    follower.doubt()
    answer = [answer_frames("topic", b"", number, payload(5000.0 + number)) for number in (4, 5)]
    assert numbers(hear(follower, answer)) == [5]
    assert follower.replayed(answer_frames("topic", b"", 6, kept(6))) == [Restarted()]


def test_another_process_while_the_past_is_awaited():
    """Its numbers go back: what waits of the one before is void, and nothing of it is told."""
    follower, dead, publisher = Follower(replays=True), Publisher(), Publisher(epoch=5000.0)
    for _ in range(6):
        dead.publish()
        publisher.publish()
    for number in (3, 4):
        follower.live(dead.live(number))
    follower.requests.clear()
    assert follower.live(publisher.live(1)) == [Restarted()]
    assert (follower.requests, follower.renew) == ([0], True)
    items = hear(follower, publisher.answer(0, 3))
    assert [item.batch.ts for item in items] == [5000.0, 5001.0, 5002.0]


def test_what_waits_for_a_replay_is_bounded(monkeypatch):
    """In batches and in bytes; what found no place is asked for later, and all is told in order."""
    for limit in ("MAX_WAITING", "MAX_WAITING_BYTES"):
        monkeypatch.undo()
        monkeypatch.setattr(follower_module, limit, 5)
        publisher = Publisher()
        follower = started(publisher)
        for number in range(2, 30):
            while len(publisher.payloads) <= number:
                publisher.publish()
            follower.live(publisher.live(number))
        assert len(follower._waiting) <= 5
        told = numbers(hear(follower, publisher.answer(0, 3)))
        told += numbers(follower.live(publisher.live(publisher.publish())))
        told += numbers(hear(follower, publisher.answer(follower.requests[-1])))
        assert told == list(range(1, 31))


@pytest.mark.parametrize("more", [0, 3])
def test_a_broken_connection_is_looked_into(more):
    """The same process goes on without a word; another one is found out, whether it has less or more."""
    publisher = Publisher()
    publisher.publish()
    follower = started(publisher)
    follower.doubt()
    assert follower.requests.pop() == 1
    assert hear(follower, publisher.answer(1)) == []
    follower.doubt()
    other = Publisher(epoch=5000.0)
    for _ in range(more):
        other.publish()
    told = hear(follower, other.answer(1))
    assert [item for item in told if not isinstance(item, Received) or item.batch.events] == [Restarted()]


def test_garbage_is_told_and_passed_over():
    """Frames of another shape have no number; a payload that makes no sense keeps its place."""
    publisher = Publisher()
    follower = started(publisher)
    assert [item.number for item in follower.live([b"x"])] == [-1]
    assert [item.number for item in follower.replayed([b"x", b"y"])] == [-1]
    assert follower.live(live_frames(b"", 1, b"\xc0")) == [Unreadable(1, "not a batch of KV events")]
    publisher.publish()
    assert numbers(follower.live(publisher.live(publisher.publish()))) == [2]


@pytest.mark.parametrize("seed", range(30))
def test_any_loss_of_live_batches(seed):
    """However many live ones are missing and whenever the replays come: each batch once, in order, and no loss."""
    dice = random.Random(seed)
    publisher, follower = Publisher(), Follower(replays=True)
    for event in Life(seed).events(60):
        publisher.publish(event)
    told: list = []
    asked: list[list[bytes]] = []
    for number in range(len(publisher.payloads)):
        if dice.random() < 0.6:
            told += follower.live(publisher.live(number))
        for start in follower.requests:
            asked += publisher.answer(start, number + 1)
        follower.requests.clear()
        while asked and dice.random() < 0.7:
            told += follower.replayed(asked.pop(0))
    told += follower.live(publisher.live(publisher.publish()))
    while asked or follower.requests:
        for start in follower.requests:
            asked += publisher.answer(start)
        follower.requests.clear()
        told += follower.replayed(asked.pop(0))
    assert numbers(told) == list(range(len(publisher.payloads)))
