"""The batches that the publisher keeps, and the state of the cache before the oldest of them.

A batch that is forgotten changes that state, so that whoever asks for batches that are not there any more can be told
everything that they had led to. While a snapshot of the state is being made, nothing is forgotten: the ring
is a little longer meanwhile.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from ...ipc.event_codec import encode_event, joined
from ...ipc.events import Cleared, Form, KvEvent
from ...ipc.shadow import Shadow

_FORGOTTEN_AT_ONCE = 4
_WORK_AT_ONCE = 4


class Kept(NamedTuple):
    """A batch as it was published, and what it told."""

    number: int
    payload: bytes
    events: Sequence[KvEvent]


class History:
    """The last `capacity` batches of a rank."""

    def __init__(self, capacity: int, rank: int, form: Form) -> None:
        self.capacity = capacity
        self._rank, self._form = rank, form
        self._kept: deque[Kept] = deque()
        self._before = Shadow()
        self._snapshot: Snapshot | None = None
        self.next = 0

    @property
    def oldest(self) -> int:
        """The number of the oldest batch that is kept; that of the next, if none is."""
        return self.next - len(self._kept)

    def append(self, payload: bytes, events: Sequence[KvEvent]) -> None:
        """Keep the next batch, and forget old ones, which are more than one only after a snapshot."""
        self._kept.append(Kept(self.next, payload, events))
        self.next += 1
        for _ in range(_FORGOTTEN_AT_ONCE):
            if len(self._kept) <= self.capacity or not self._may_forget():
                return
            self._snapshot = None
            for event in self._kept.popleft().events:
                self._before.apply(event)

    def _may_forget(self) -> bool:
        """Whether no snapshot is being made. One that is gets on here, too: who wanted it may have gone."""
        snapshot = self._snapshot
        for _ in range(_WORK_AT_ONCE):
            if snapshot is None or snapshot.payload:
                return True
            snapshot.work()
        return False

    def since(self, start: int) -> list[Kept]:
        """The batches from a number on that are kept. With 10,000 of them it takes 0.1 ms."""
        return list(islice(self._kept, min(max(0, start - self.oldest), len(self._kept)), None))

    def snapshot(self, ts: float) -> Snapshot:
        """The state before the oldest batch, in a batch that has its predecessor's number, soon."""
        if self._snapshot is None:
            self._snapshot = Snapshot(self._before, ts, self._rank, self._form)
        return self._snapshot


class Snapshot:
    """A batch that tells a whole state. `payload` is empty until `work` was called often enough."""

    def __init__(self, state: Shadow, ts: float, rank: int, form: Form) -> None:
        self.payload = b""
        self._work = self._made(state, ts, rank, form)

    def work(self) -> None:
        """Make a little more of it: less than 1 ms."""
        next(self._work, None)

    def _made(self, state: Shadow, ts: float, rank: int, form: Form) -> Iterator[None]:
        parts = [encode_event(Cleared(), form)]
        for event in state.events():
            parts.append(encode_event(event, form))
            yield
        self.payload = joined(ts, parts, rank)
