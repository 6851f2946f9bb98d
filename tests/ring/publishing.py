"""A publisher behind the ring's scheduler, in the same process, and those who listen to it. Each may be replaced."""

from __future__ import annotations

from collections import deque

from fourstroke.ipc.block_hash import ROOT
from fourstroke.ipc.board import Board, board_bytes
from fourstroke.ipc.event_codec import decode_batch
from fourstroke.ipc.follower import Follower, Item, Received, Restarted
from fourstroke.ipc.kv_index import KvIndex
from fourstroke.ipc.messages import KvBatch
from fourstroke.ipc.replay import answer_frames, end_frames, live_frames
from fourstroke.ipc.wire import LIVES, Inbox, Lives, Outbox, memory_wire
from fourstroke.procs.publisher.turn import PublisherTurn
from fourstroke.procs.scheduler.announcer import Announcer

from ..unit.procs.publisher.made import Made
from .ring import Ring

NAMES = ("scheduler0", "publisher0")


class Publishing:
    """The publisher of a ring: `announcer` is for the ring, `live` what was published since the publisher's start."""

    def __init__(self, *, queue: int = 1000, **made: object) -> None:
        board = Board(bytearray(board_bytes(len(NAMES))), NAMES)
        self.scheduler_row, self._row = board.row("scheduler0"), board.row("publisher0")
        self._wire = memory_wire("publisher0", KvBatch, high_water_mark=100_000)[0].socket
        self._queue, self._options = queue, made
        self.incarnation = 0
        self.start()
        self.start_scheduler()

    def start(self) -> None:
        """A new process takes the place of the one before, of which nothing is left but what waits on the wire."""
        row, now = self._row, self.made.now + 1 if self.incarnation else 100.0
        row["kv_event_taken"] = row["kv_event_wishes"] = 0
        self.made = Made(now=now, **self._options)
        inbox = Inbox(self._wire, "scheduler0", KvBatch, lives=Lives(self.incarnation, lambda: self.scheduler_row.life))
        row.live(self.incarnation)
        self.incarnation += 1
        self.turn = PublisherTurn(
            *(inbox, row, self.made.stream, self.made.replays),
            incarnation=self.incarnation,
            root=ROOT,
            clock=self.made.clock,
        )
        row["incarnation"] = self.incarnation

    def start_scheduler(self, life: int = 0) -> None:
        """The scheduler that lives this life: `announcer` is its own."""
        self.scheduler_row.begin()
        outbox = Outbox(self._wire, "publisher0", Lives(life, lambda: self._row.life))
        self.announcer = Announcer(outbox, self._row, self.scheduler_row, self._queue)
        self.scheduler_row.live(life)

    def garble(self) -> None:
        """One of the frames that wait on the wire makes no sense any more."""
        if self._wire._frames:
            self._wire._frames[0][0] = self._wire._frames[0][0][: LIVES.size] + b"\0"

    @property
    def waiting(self) -> int:
        """Batches that the scheduler believes to be on their way."""
        return self.announcer.waiting

    def listener(self, block_size: int = 4) -> KvIndex:
        """One who was there since this process began."""
        return _index([payload for _, payload in self.made.live.sent], block_size)

    def late_joiner(self, block_size: int = 4) -> KvIndex:
        """One who comes now, and asks for everything."""
        return _index([payload for _, payload in self.made.replay(0)], block_size)


class Subscriber:
    """Follows a publishing through the lives of its processes, when it is its turn to read. `items` are what it saw."""

    def __init__(self, publishing: Publishing) -> None:
        self._publishing, self._made = publishing, publishing.made
        self._follower = Follower(replays=True)
        self._seen = 0
        self.index = KvIndex(4)
        self.items: list[Item] = []

    def read(self, missed: int = 0) -> None:
        """Hear what was published since the last time, but for so many: the queue was full."""
        if self._publishing.made is not self._made:
            self._made, self._seen = self._publishing.made, 0
            self._follower.doubt()
        new = self._made.live.sent[self._seen :]
        self._seen += len(new)
        for number, payload in new[: len(new) - missed]:
            self._take(self._follower.live(live_frames(b"", number, payload)))
        while self._follower.requests:
            self._hear_answer(self._follower.requests.pop(0))

    def _hear_answer(self, start: int) -> None:
        self._follower.renew = False
        answer = deque(answer_frames("topic", b"", *batch) for batch in self._made.replay(start))
        answer.append(end_frames("topic"))
        while answer and not self._follower.renew:
            self._take(self._follower.replayed(answer.popleft()))

    def _take(self, items: list[Item]) -> None:
        for item in items:
            assert isinstance(item, Received | Restarted), item
            if isinstance(item, Received):
                self.index.apply(item.batch)
            else:
                self.index.forget(0)
        self.items += items


def _index(payloads: list[bytes], block_size: int) -> KvIndex:
    index = KvIndex(block_size)
    for payload in payloads:
        index.apply(decode_batch(payload))
    return index


def cached(ring: Ring) -> set[int]:
    """The published hashes of what the ring's scheduler has in its cache."""
    core = ring.scheduler.core
    assert core is not None
    return {int.from_bytes(digest[-8:], "big") for digest in core.pool._residency._entry_of}
