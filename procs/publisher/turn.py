"""One turn of the publisher's loop: takes the KV cache's changes from the scheduler and checks their numbers.

Subscribers are not served yet: what arrives is counted. The scheduler is never answered, so nothing here can
slow it down.
"""

from __future__ import annotations

import logging

from ...common.errors import BadMessage
from ...ipc.board import Row
from ...ipc.messages import KvBatch
from ...ipc.wire import Inbox

log = logging.getLogger("fourstroke")


class PublisherTurn:
    """The publisher, ready to run."""

    def __init__(self, inbox: Inbox, row: Row) -> None:
        self._inbox = inbox
        self._row = row
        self._next: int | None = None

    def run(self) -> None:
        """Take the batches that have arrived."""
        for batch in self._inbox.drain():
            self._take(batch)

    def _take(self, batch: KvBatch) -> None:
        """Count a batch, and those before it that never came.

        Batches sent before this process started are not missed. A scheduler that starts again begins at 0.
        """
        number, expected = batch.number, self._next
        if number < 0 or (expected is not None and 0 < number < expected):
            self._inbox.reject(BadMessage(f"KV batch {number} where {expected} belongs"))
            return
        if expected is not None and number > expected:
            self._row.add("kv_event_batches_lost", number - expected)
            log.warning("KV batches %d to %d were lost", expected, number - 1)
        self._row.add("kv_event_batches")
        self._next = number + 1
