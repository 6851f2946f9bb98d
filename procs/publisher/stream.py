"""The stream of batches: numbers them, encodes them, keeps them and sends them to whoever listens.

A batch has its number before anything can go wrong with it: what a subscriber misses he sees as a gap. Sending never
waits. The first batch that cannot be encoded is sent empty, and everything is wished for again; what cannot be encoded
from then on is left out. Where nothing happens for a while an empty batch tells that the stream lives, and late
joiners that they have missed something.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from itertools import dropwhile
from typing import Protocol

from ...common.log import Seldom
from ...ipc.board import Row
from ...ipc.event_codec import encode_batch
from ...ipc.events import Cleared, Form, KvEvent
from .history import History
from .unsayable import Unsayable

log = logging.getLogger("fourstroke")

MOST_WAITING_BLOCKS = 16_384
"""With more blocks in what waits for its interval it is sent early: they take 3 ms to encode, and 2 MB."""

_UNENCODABLE = (ValueError, TypeError, OverflowError)

Encode = Callable[[float, Sequence[KvEvent], int, Form], bytes]


class Live(Protocol):
    """Where batches are published."""

    def send(self, number: int, payload: bytes) -> bool:
        """False if a subscriber's queue was full, so that he does not get it."""
        ...


class Stream:
    """The batches of one rank, from number 0, which says that nothing is cached.

    `wishes_all` is 1 from the first batch on that could not be encoded: the whole state must be told again. Times are
    of the monotonic clock, in seconds, but for the one in a batch.
    """

    def __init__(
        self,
        history: History,
        live: Live,
        row: Row,
        *,
        rank: int,
        form: Form,
        heartbeat_s: float = 0.0,
        min_interval_s: float = 0.0,
        encode: Encode = encode_batch,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._history, self._live, self._row = history, live, row
        self._rank, self._form = rank, form
        self._heartbeat_s, self._min_interval_s = heartbeat_s or float("inf"), min_interval_s
        self._encode = encode
        self._clock, self._wall_clock = clock, wall_clock
        self._waiting: list[KvEvent] = []
        self._waiting_blocks = 0
        self._is_empty = True  # as far as it was told here: what batch 0 says need not be said again
        self._must_clear = False  # what is told until then stands on something that was not told
        self._unsayable = Unsayable()
        self._warning = Seldom(clock)
        self.wishes_all = 0
        self._publish([Cleared()])

    @property
    def next_due_s(self) -> float:
        """When something must be sent though nothing happens."""
        return self._last_s + (self._min_interval_s if self._waiting else self._heartbeat_s)

    def take(self, events: Sequence[KvEvent]) -> None:
        """Publish these events as a batch, or together with later ones if the last batch is too recent.

        That the cache is empty is never kept back.
        """
        if self._must_clear:
            events = list(dropwhile(lambda event: not isinstance(event, Cleared), events))
            self._must_clear = not events
        if self._is_empty and events and isinstance(events[0], Cleared):
            events = events[1:]
        self._is_empty = self._is_empty and not events
        self._waiting += events
        self._waiting_blocks += sum(1 if isinstance(event, Cleared) else len(event.digests) for event in events)
        at_once = not self._min_interval_s or self._waiting_blocks > MOST_WAITING_BLOCKS
        if at_once or any(isinstance(event, Cleared) for event in events):
            self.flush()

    def tick(self) -> None:
        """Send what is due now."""
        if self._clock() >= self.next_due_s:
            if self._waiting:
                self.flush()
            else:
                self._publish(())

    def flush(self) -> None:
        """Publish what waits."""
        if self._waiting:
            events, self._waiting, self._waiting_blocks = self._waiting, [], 0
            self._publish(events)

    def _publish(self, events: Sequence[KvEvent]) -> None:
        self._last_s = self._clock()
        if self._unsayable:
            events = self._unsayable.without(events, self._can_be_said)
        try:
            payload = self._encoded(events)
        except _UNENCODABLE as error:
            events = self._what_can_be_said(events, error)
            payload = self._encoded(events) if events else encode_batch(self._wall_clock(), (), self._rank, self._form)
        number = self._history.next
        self._history.append(payload, events)
        if not self._live.send(number, payload):
            self._row.add("kv_event_dropped_send")
        self._count(events, payload)

    def _encoded(self, events: Sequence[KvEvent]) -> bytes:
        return self._encode(self._wall_clock(), events, self._rank, self._form)

    def _what_can_be_said(self, events: Sequence[KvEvent], error: Exception) -> Sequence[KvEvent]:
        """Of a batch that cannot be encoded: at first nothing, since everything is told again. What fails then, or
        later, would fail each time that everything is told.
        """
        self._row.add("kv_event_encode_errors")
        if self._warning.is_due():
            log.error("batch %d of KV events cannot be encoded: %s", self._history.next, error)
        if not self.wishes_all:
            self.wishes_all = 1
            self._must_clear = True
            return ()
        return self._unsayable.without(events, self._can_be_said)

    def _can_be_said(self, event: KvEvent) -> bool:
        try:
            self._encoded([event])
        except _UNENCODABLE:
            return False
        return True

    def _count(self, events: Sequence[KvEvent], payload: bytes) -> None:
        row = self._row
        row.add("kv_event_batches")
        row.add("kv_event_events", len(events))
        row.add("kv_event_bytes", len(payload))
        row["kv_event_seq"], row["kv_event_ring_oldest"] = self._history.next, self._history.oldest
