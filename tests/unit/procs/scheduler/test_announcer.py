"""The way to the publisher: bounded, never waiting, and after a loss everything is told again."""

from __future__ import annotations

import pytest

from fourstroke.common.types import KvKind
from fourstroke.ipc.board import Board, board_bytes
from fourstroke.ipc.messages import KvBatch
from fourstroke.ipc.wire import memory_wire
from fourstroke.procs.scheduler.announcer import Announcer
from fourstroke.procs.scheduler.cache import bulletin as bulletin_module

from .cache.chains import Cache

NAMES = ("scheduler0", "publisher0")


class Channel:
    """An announcer, a cache, and a publisher that takes batches when it is told to."""

    def __init__(self, capacity: int) -> None:
        board = Board(bytearray(board_bytes(len(NAMES))), NAMES)
        self.row, self.publisher = board.row("scheduler0"), board.row("publisher0")
        outbox, self.inbox = memory_wire("publisher0", KvBatch, high_water_mark=10_000)
        self.cache = Cache(64, events=True)
        self.bulletin = self.cache.pool.bulletin
        self.announcer = Announcer(outbox, self.publisher, self.row, capacity)
        self._token = 0

    def change(self) -> None:
        """Something happens in the cache, and the scheduler's turn ends."""
        self._token += 1
        self.cache.run([self._token] * 4)
        self.announcer.announce(self.bulletin)

    def take(self) -> list[KvBatch]:
        batches = list(self.inbox.drain())
        self.publisher.add("kv_event_taken", len(batches))
        return batches

    @property
    def dropped(self) -> int:
        return self.row["kv_event_dropped_channel"]


def blocks(batch: KvBatch) -> int:
    return sum(len(change.digests) // 32 for change in batch.changes if change.kind is KvKind.STORED)


@pytest.fixture
def channel() -> Channel:
    made = Channel(capacity=4)
    made.publisher["incarnation"] = 77
    made.announcer.announce(made.bulletin)
    assert [batch.number for batch in made.take()] == [0]
    return made


def test_nothing_is_sent_while_there_is_no_publisher():
    """What happens meanwhile is told when there is one: nothing is there, and then everything."""
    channel = Channel(capacity=4)
    for _ in range(3):
        channel.change()
    assert channel.take() == []
    channel.publisher["incarnation"] = 77
    channel.announcer.announce(channel.bulletin)
    (batch,) = channel.take()
    assert (batch.incarnation, batch.number, batch.changes[0].kind) == (77, 0, KvKind.CLEARED)
    assert blocks(batch) == 3


def test_a_batch_for_each_turn_that_has_changes(channel):
    """Numbered without a gap; a turn without changes sends nothing."""
    for _ in range(3):
        channel.change()
        channel.announcer.announce(channel.bulletin)
    assert [(batch.number, blocks(batch)) for batch in channel.take()] == [(1, 1), (2, 1), (3, 1)]


def test_queue_of_one_and_a_publisher_that_takes_nothing():
    """Of five batches one waits, four are dropped and counted, and nothing waits or grows."""
    channel = Channel(capacity=1)
    channel.publisher["incarnation"] = 77
    channel.announcer.announce(channel.bulletin)
    channel.take()
    for _ in range(5):
        channel.change()
    assert (channel.dropped, channel.announcer.waiting) == (4, 1)
    assert len(channel.take()) == 1


def test_after_a_loss_everything_is_told_again(channel):
    """As soon as half of the queue is free: Cleared first, in a session of its own, and every block."""
    for _ in range(10):
        channel.change()
    assert channel.dropped == 6
    assert [batch.number for batch in channel.take()] == [1, 2, 3, 4]
    channel.announcer.announce(channel.bulletin)
    (again,) = channel.take()
    assert (again.number, again.changes[0].kind, blocks(again)) == (0, KvKind.CLEARED, 10)
    assert channel.row["kv_event_resyncs"] == 2
    channel.change()
    (follows,) = channel.take()
    assert (follows.session, follows.number, blocks(follows)) == (again.session, 1, 1)


@pytest.mark.parametrize("sign", ["another process", "a wish"])
def test_who_knows_nothing_is_told_everything(channel, sign):
    """A new incarnation, or a publisher that could not encode something; what waited for the old one is counted out."""
    for _ in range(3):
        channel.change()
    if sign == "a wish":
        channel.take()
        channel.publisher["kv_event_wishes"] += 1
    else:
        channel.publisher["kv_event_taken"] = 0
        channel.publisher["incarnation"] = 78
    channel.announcer.announce(channel.bulletin)
    last = list(channel.inbox.drain())[-1]
    assert (last.incarnation, last.number) == (channel.publisher["incarnation"], 0)
    assert blocks(last) == 3
    assert channel.announcer.waiting == 1


def test_everything_goes_through_a_queue_of_one(monkeypatch):
    """Slice by slice, whenever there is room; what happens meanwhile waits and does not make it begin anew."""
    monkeypatch.setattr(bulletin_module, "SLICE", 2)
    channel = Channel(capacity=1)
    for _ in range(9):
        channel.change()
    channel.publisher["incarnation"] = 77
    found = []
    for turn in range(40):
        channel.change() if turn in (3, 4) else channel.announcer.announce(channel.bulletin)
        if turn % 3 == 2:
            found += channel.take()
    assert [batch.number for batch in found] == list(range(len(found)))
    assert (sum(map(blocks, found)), channel.row["kv_event_resyncs"]) == (11, 1)


def test_how_long_the_loop_may_wait(channel):
    """For ever when all is told; not at all for the next slice; a while for room or for a publisher."""
    assert channel.announcer.wait_s(channel.bulletin) == float("inf")
    channel.bulletin.start_over()
    assert channel.announcer.wait_s(channel.bulletin) == 0
    channel.announcer.announce(channel.bulletin)
    for _ in range(10):
        channel.change()
    assert 0 < channel.announcer.wait_s(channel.bulletin) < 1
