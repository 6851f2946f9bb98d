"""The stream of batches: numbers them, encodes them, keeps them and sends them to whoever listens.

A batch has its number before anything can go wrong with it: what a subscriber misses he sees as a gap. Sending never
waits. Where nothing happens for a while an empty batch tells that the stream lives, and late joiners that they have
missed something.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from ...ipc.board import Row
from ...ipc.event_codec import encode_batch
from ...ipc.events import Cleared, Form, KvEvent
from .history import History

log = logging.getLogger("fourstroke")

Encode = Callable[[float, Sequence[KvEvent], int, Form], bytes]


class Live(Protocol):
    """Where batches are published."""

    def send(self, number: int, payload: bytes) -> bool:
        """False if a subscriber's queue was full, so that he does not get it."""
        ...


class Stream:
    """The batches of one rank, from number 0, which says that nothing is cached.

    `wishes_all` counts the batches that could not be encoded: after each the whole state must be told again. Times
    are of the monotonic clock, in seconds, but for the one in a batch.
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
        self.wishes_all = 0
        self._publish([Cleared()])

    @property
    def next_due_s(self) -> float:
        """When something must be sent though nothing happens."""
        return self._last_s + (self._min_interval_s if self._waiting else self._heartbeat_s)

    def take(self, events: Sequence[KvEvent]) -> None:
        """Publish these events as a batch, or together with later ones if the last batch is too recent."""
        if self._history.next == 1 and isinstance(events[0], Cleared):
            events = events[1:]  # said already, in batch 0
        self._waiting += events
        if not self._min_interval_s:
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
            events, self._waiting = self._waiting, []
            self._publish(events)

    def _publish(self, events: Sequence[KvEvent]) -> None:
        self._last_s = self._clock()
        try:
            payload = self._encode(self._wall_clock(), events, self._rank, self._form)
        except (ValueError, TypeError, OverflowError) as error:
            log.error("batch %d of KV events cannot be encoded and is sent empty: %s", self._history.next, error)
            self._row.add("kv_event_encode_errors")
            self.wishes_all += 1
            events = ()
            payload = encode_batch(self._wall_clock(), events, self._rank, self._form)
        number = self._history.next
        self._history.append(payload, events)
        if not self._live.send(number, payload):
            self._row.add("kv_event_dropped_send")
        self._count(events, payload)

    def _count(self, events: Sequence[KvEvent], payload: bytes) -> None:
        row = self._row
        row.add("kv_event_batches")
        row.add("kv_event_events", len(events))
        row.add("kv_event_bytes", len(payload))
        row["kv_event_seq"], row["kv_event_ring_oldest"] = self._history.next, self._history.oldest
