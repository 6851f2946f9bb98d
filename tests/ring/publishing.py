"""A publisher behind the ring's scheduler, in the same process, and those who listen to it."""

from __future__ import annotations

from fourstroke.ipc.block_hash import ROOT
from fourstroke.ipc.board import Board, board_bytes
from fourstroke.ipc.event_codec import decode_batch
from fourstroke.ipc.kv_index import KvIndex
from fourstroke.ipc.messages import KvBatch
from fourstroke.ipc.wire import memory_wire
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
        outbox, self._inbox = memory_wire("publisher0", KvBatch, high_water_mark=100_000)
        self.announcer = Announcer(outbox, self._row, self.scheduler_row, queue)
        self._options = made
        self.incarnation = 0
        self.start()

    def start(self) -> None:
        """A new process takes the place of the one before, of which nothing is left but what waits on the wire."""
        self.incarnation += 1
        self._row["kv_event_taken"] = self._row["kv_event_wishes"] = 0
        self.made = Made(**self._options)
        self.turn = PublisherTurn(
            self._inbox, self._row, self.made.stream, self.made.replays, incarnation=self.incarnation, root=ROOT
        )
        self._row["incarnation"] = self.incarnation

    def listener(self, block_size: int = 4) -> KvIndex:
        """One who was there since this process began."""
        return _index([payload for _, payload in self.made.live.sent], block_size)

    def late_joiner(self, block_size: int = 4) -> KvIndex:
        """One who comes now, and asks for everything."""
        return _index([payload for _, payload in self.made.replay(0)], block_size)


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
