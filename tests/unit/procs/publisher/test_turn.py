"""A turn of the publisher: which batches it takes, and how soon it wants to have another one."""

from __future__ import annotations

import pytest

from fourstroke.common.types import KvKind
from fourstroke.ipc.messages import KvBatch, KvChange
from fourstroke.ipc.wire import memory_wire
from fourstroke.procs.publisher.turn import BATCHES_AT_ONCE, PublisherTurn

from .made import Made, numbers, state_after

ROOT = bytes(32)
CLEARED = KvChange(KvKind.CLEARED)


def stored(number: int, tokens: int = 4) -> KvChange:
    digest = number.to_bytes(32, "big")
    return KvChange(KvKind.STORED, digest, (1).to_bytes(4, "little"), ROOT, bytes(4 * tokens))


class Turning(Made):
    """A publisher with the incarnation 7, behind its wire."""

    def __init__(self, **made) -> None:
        super().__init__(**made)
        self.outbox, self.inbox = memory_wire("publisher0", KvBatch, high_water_mark=1000)
        self.turn = PublisherTurn(
            self.inbox, self.row, self.stream, self.replays, incarnation=7, root=ROOT, clock=self.clock
        )

    def send(self, session: int, number: int, *changes: KvChange, incarnation: int = 7) -> None:
        self.outbox.send(KvBatch(incarnation, session, number, changes))


@pytest.mark.parametrize(
    "batches, published, bad, wishes",
    [
        ([(1, 0), (1, 1), (1, 2)], 4, 0, 0),
        ([(1, 0), (1, 2), (1, 3)], 2, 1, 1),
        ([(1, 0), (1, 1), (2, 0), (2, 1)], 5, 0, 0),
        ([(2, 0), (1, 0), (1, 1), (2, 1)], 3, 2, 0),
        ([(1, 0), (1, 0)], 2, 1, 0),
        ([(1, 1), (1, 2), (1, 3)], 1, 1, 1),
        ([(1, 0), (2, 1), (2, 2)], 2, 1, 1),
        ([(1, 0), (1, 2), (2, 0), (2, 1)], 4, 1, 0),
    ],
    ids=["in order", "a gap", "a later one", "an old one", "twice", "no beginning", "a later one's end", "all again"],
)
def test_sessions_and_numbers(batches, published, bad, wishes):
    """What does not continue a session, or begin a later one, is a bad message; where something is missing everything
    is wished for, if it does not begin by itself. All count as taken.
    """
    made = Turning()
    for at, (session, number) in enumerate(batches):
        made.send(session, number, *([CLEARED] if number == 0 else []), stored(at))
    made.turn.run()
    assert (len(made.live.sent), made.inbox.bad_frames, made.row["kv_event_wishes"]) == (published, bad, wishes)
    assert made.row["kv_event_taken"] == len(batches)


def test_frames_that_are_no_batch():
    """Are batches that got lost: they count as taken, so that the way does not fill up, and all is wished for."""
    made = Turning()
    made.send(1, 0, CLEARED)
    made.turn.run()
    made.outbox.socket.send(b"\0" * 9)
    made.turn.run()
    assert (made.row["kv_event_taken"], made.row["kv_event_wishes"], made.row["kv_event_gaps"]) == (2, 1, 1)
    made.turn.run()
    assert (made.row["kv_event_taken"], made.row["kv_event_wishes"]) == (2, 1)


def test_what_never_makes_sense_is_asked_for_seldom():
    """However often it is told, the whole cache is wished for once in a while."""
    made = Turning()
    wrong = KvChange(KvKind.STORED, bytes(64), (1).to_bytes(4, "little"), ROOT, bytes(32))
    for session in range(1, 50):
        made.send(session, 0, CLEARED, wrong)
        made.turn.run()
        made.now += 1
    assert made.row["kv_event_wishes"] == 5
    assert made.row["kv_event_gaps"] == 49


def test_batches_for_another_process():
    """They were meant for the publisher before: dropped, and not counted as taken."""
    made = Turning()
    made.send(1, 0, CLEARED, incarnation=6)
    made.turn.run()
    assert (len(made.live.sent), made.row["kv_event_taken"], made.inbox.bad_frames) == (1, 0, 1)


def test_columns_that_do_not_fit():
    """A bad message: everything is wished for, and the stream goes on with that."""
    made = Turning()
    wrong = KvChange(KvKind.STORED, bytes(64), (1).to_bytes(4, "little"), ROOT, bytes(32))
    made.send(1, 0, CLEARED, wrong)
    made.send(1, 1, stored(5))
    made.turn.run()
    assert (numbers(made.live.sent), made.inbox.bad_frames, made.row["kv_event_wishes"]) == ([0], 1, 1)
    made.send(2, 0, CLEARED, stored(5))
    made.turn.run()
    assert state_after(made.live.sent).keys() == {"GPU"}


def test_live_batches_come_before_readers():
    """A turn takes a bounded number of batches, so that readers have their turn, and says that there are more."""
    made = Turning()
    for number in range(BATCHES_AT_ONCE + 10):
        made.send(1, number, stored(number))
    made.turn.run()
    assert len(made.live.sent) == 1 + BATCHES_AT_ONCE
    assert made.turn.wait_ms(1000) == 0
    made.turn.run()
    assert len(made.live.sent) == 11 + BATCHES_AT_ONCE
    assert made.turn.wait_ms(1000) == 1000


def test_how_long_it_may_wait():
    """Until the heartbeat; a moment for a reader who has no room."""
    made = Turning(heartbeat_s=0.5, room=0)
    assert made.turn.wait_ms(1000) == 500
    made.router.ask(b"x", 0)
    made.turn.run()
    assert 0 < made.turn.wait_ms(1000) <= 10


def test_what_has_arrived_is_published_at_the_end():
    """Also what waited for the interval."""
    made = Turning(min_interval_s=100)
    made.send(1, 0, CLEARED)
    made.send(1, 1, stored(1))
    made.turn.run()
    assert len(made.live.sent) == 1
    made.send(1, 2, stored(2))
    made.turn.finish()
    assert (len(made.live.sent), made.row["kv_event_events"]) == (2, 3)
