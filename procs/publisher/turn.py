"""One turn of the publisher's loop: takes the changes of the KV cache from the scheduler, publishes and replays.

The scheduler is never answered: it reads from the board how many batches were taken, and who wishes to be told the
whole cache. After a batch that is missing or makes no sense that is wished for, and until it begins what comes is
passed over. A scheduler that takes the place of a dead one begins a later session: nothing more is needed.
"""

from __future__ import annotations

import logging
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

log = logging.getLogger("fourstroke")

BATCHES_AT_ONCE = 64
"""So many batches are taken before readers of replays get their turn."""

WISH_EVERY_S = 10.0
"""How often the whole cache may be wished for: what makes no sense may make none each time."""


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
        self._lost = self._must_wish = False
        self._wishes, self._wish_due_s = 0, float("-inf")
        self._refused = self._garbled = 0

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
        self._look_for_garbled()
        self._wish()
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
            self._reject(BadMessage("KV events for a publisher that is no more"))
            return
        self._row.add("kv_event_taken")
        if batch.number == 0 and batch.session > self._session:
            self._lost = self._must_wish = False
        elif self._lost and batch.session >= self._session:
            return
        elif (batch.session, batch.number) != (self._session, self._next):
            self._reject(BadMessage(f"KV batch {batch.number} where {self._next} belongs"))
            if (batch.session, batch.number) > (self._session, self._next):
                self._lose()
            return
        self._session, self._next = batch.session, batch.number + 1
        self._publish(batch)

    def _publish(self, batch: KvBatch) -> None:
        try:
            events = [event for change in batch.changes for event in events_of(change, self._root, self._salt_prefix)]
        except BadMessage as error:
            self._reject(error)
            self._lose()
            return
        if events:
            self._stream.take(events)

    # When a batch is missing

    def _reject(self, error: BadMessage) -> None:
        self._inbox.reject(error)
        self._refused += 1

    def _look_for_garbled(self) -> None:
        """Frames of which the wire could make no message were batches, too."""
        garbled = self._inbox.bad_frames - self._refused
        if garbled > self._garbled:
            self._row.add("kv_event_taken", garbled - self._garbled)
            self._garbled = garbled
            self._lose()

    def _lose(self) -> None:
        """What is published is not what is cached any more."""
        if not self._lost:
            self._lost = self._must_wish = True
            self._row.add("kv_event_gaps")

    def _wish(self) -> None:
        """Say on the board what is wished for, soon but seldom."""
        now = self._clock()
        if self._must_wish and now >= self._wish_due_s:
            self._must_wish, self._wish_due_s = False, now + WISH_EVERY_S
            self._wishes += 1
            log.warning("KV events of the scheduler are missing or make no sense: it tells everything again")
        self._row["kv_event_wishes"] = self._wishes + self._stream.wishes_all
