"""One turn of the publisher's loop: takes the changes of the KV cache from the scheduler, publishes and replays.

The scheduler is never answered: it reads from the board how many batches were taken, and who wishes to be told the
whole cache.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from ...common.errors import BadMessage
from ...ipc.board import Row
from ...ipc.event_columns import events_of
from ...ipc.messages import KvBatch
from ...ipc.wire import Inbox
from ..process import RETRY_MS
from .replays import Replays
from .stream import Stream

BATCHES_AT_ONCE = 64
"""So many batches are taken before readers of replays get their turn."""


class PublisherTurn:
    """The publisher with this incarnation, ready to run. Without `replays` nothing is replayed."""

    def __init__(
        self,
        inbox: Inbox,
        row: Row,
        stream: Stream,
        replays: Replays | None,
        *,
        incarnation: int,
        root: bytes,
        salt_prefix: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._inbox, self._row = inbox, row
        self._stream, self._replays = stream, replays
        self._incarnation = incarnation
        self._root, self._salt_prefix = root, salt_prefix
        self._clock = clock
        self._session = self._next = 0
        self._more = False

    def wait_ms(self, most: int) -> int:
        """How long the loop may wait for messages."""
        if self._more or (self._replays is not None and self._replays.can_go_on):
            return 0
        if self._replays:
            most = min(most, RETRY_MS)
        return math.ceil(min(most, max(0.0, 1000 * (self._stream.next_due_s - self._clock()))))

    def run(self) -> None:
        """Publish what has arrived and what is due, then answer readers for a while."""
        taken = 0
        for batch in self._inbox.drain(BATCHES_AT_ONCE):
            taken += 1
            self._take(batch)
        self._more = taken == BATCHES_AT_ONCE
        self._row["kv_event_wishes"] = self._stream.wishes_all
        self._stream.tick()
        if self._replays is not None:
            self._replays.run()

    def finish(self) -> None:
        """Publish all that has arrived."""
        for batch in self._inbox.drain():
            self._take(batch)
        self._stream.flush()

    def _take(self, batch: KvBatch) -> None:
        """Publish a batch that continues its session or begins a later one."""
        if batch.incarnation != self._incarnation:
            self._inbox.reject(BadMessage("KV events for a publisher that is no more"))
            return
        self._row.add("kv_event_taken")
        begins = batch.number == 0 and batch.session > self._session
        if not begins and (batch.session, batch.number) != (self._session, self._next):
            self._inbox.reject(BadMessage(f"KV batch {batch.number} where {self._next} belongs"))
            return
        self._session, self._next = batch.session, batch.number + 1
        try:
            events = [event for change in batch.changes for event in events_of(change, self._root, self._salt_prefix)]
        except BadMessage as error:
            self._inbox.reject(error)
            return
        if events:
            self._stream.take(events)
