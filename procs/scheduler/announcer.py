"""Hands changes of the KV cache to the publisher, and never waits for it.

How much it has taken stands on its row of the board, and so does who it is: a new process knows nothing and is told
the whole cache, in slices, as is one that wishes so. When too much waits for it, changes are dropped and counted,
and it is told everything again as soon as there is room. Encoding for the world is the publisher's work.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from ...common.log import Seldom
from ...ipc.board import Row
from ...ipc.messages import KvBatch
from ...ipc.wire import Outbox
from ..process import RETRY_MS
from .cache.bulletin import Bulletin

log = logging.getLogger("fourstroke")

MOST_HELD = 256
"""So many changes wait for room while everything is told again, so that one change more is no reason to begin anew."""

_LOOK_AGAIN_S = 0.1


class Announcer:
    """The way to the publisher, on which at most `capacity` batches wait. `row` is the scheduler's own."""

    def __init__(
        self,
        outbox: Outbox,
        publisher: Row,
        row: Row,
        capacity: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._outbox = outbox
        self._publisher = publisher
        self._row = row
        self._capacity = capacity
        self._wish: tuple[int, int] | None = None
        self._session = self._number = self._sent = 0
        self._stale = True
        self._warning = Seldom(clock)

    @property
    def incarnation(self) -> int:
        return self._wish[0] if self._wish else 0

    @property
    def waiting(self) -> int:
        """Batches that the publisher has not taken yet."""
        return self._sent - self._publisher["kv_event_taken"]

    def wait_s(self, bulletin: Bulletin) -> float:
        """How soon the publisher may be told more, though nothing happens here."""
        if self._stale:
            return _LOOK_AGAIN_S
        if not bulletin.waits:
            return float("inf")
        return 0.0 if self.waiting < self._capacity else RETRY_MS / 1000

    def announce(self, bulletin: Bulletin) -> None:
        """Send what has happened since the last time, or drop it."""
        self._look_for_publisher(bulletin)
        if self._stale:
            self._try_again(bulletin)
        if bulletin.waits and self.waiting < self._capacity:
            self._outbox.send(KvBatch(self.incarnation, self._session, self._number, tuple(bulletin.take())))
            self._number += 1
            self._sent += 1
        elif bulletin.changes > (MOST_HELD if bulletin.behind else 0):
            self._fall_behind(bulletin)
        self._row["kv_event_queue_depth"] = self.waiting

    def _look_for_publisher(self, bulletin: Bulletin) -> None:
        """Begin anew for a publisher that has begun anew, or wishes it."""
        wish = self._publisher["incarnation"], self._publisher["kv_event_wishes"]
        if wish == self._wish:
            return
        if wish[0] != self.incarnation:
            self._sent = self._publisher["kv_event_taken"]
        self._wish = wish
        self._stale = True
        bulletin.mute()

    def _fall_behind(self, bulletin: Bulletin) -> None:
        bulletin.mute()
        bulletin.missed = True
        self._stale = True
        self._count_drop(bulletin)

    def _try_again(self, bulletin: Bulletin) -> None:
        """Tell everything again if half of the room is free, so that it does not fill up at once."""
        if self.incarnation and self.waiting <= self._capacity // 2:
            bulletin.start_over()
            self._stale = False
            self._session, self._number = time.monotonic_ns(), 0  # the machine's clock: it rises from life to life, too
            self._row.add("kv_event_resyncs")
        else:
            self._count_drop(bulletin)

    def _count_drop(self, bulletin: Bulletin) -> None:
        if not bulletin.missed:
            return
        bulletin.mute()
        self._row.add("kv_event_dropped_channel")
        if self.incarnation and self._warning.is_due():
            log.warning(
                "the publisher lags by %d batches of KV events: they are dropped until it has room", self.waiting
            )
