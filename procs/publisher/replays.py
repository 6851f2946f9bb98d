"""Answers those who ask for batches again: in slices between the live ones, a few messages of each reader in turn.

A reader who takes nothing holds up nobody else, and is given up after a while. The answer is fixed when it is asked
for: every batch from `start` to the newest of that moment, in order. Of batches that are not kept any more the
numbers are sent, with nothing in them, and then the state to which they have led.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Protocol

from ...common.errors import BadMessage
from ...ipc.board import Row
from ...ipc.event_codec import joined
from ...ipc.replay import ReplayForm, answer_frames, end_frames, read_request
from .history import History, Kept, Snapshot

log = logging.getLogger("fourstroke")

SLICE_S = 0.002
"""So long at most readers are served before live batches are looked for again."""

STALLED_S = 30.0
"""A reader who takes nothing for so long is given up."""

MAX_READERS = 64
MAX_REQUESTS = 16
"""Of one reader, which are answered one after the other."""

MAX_EMPTY = 1_000_000
"""With more batches missing the answer begins with the snapshot."""

_HEARD_AT_ONCE = 100
"""So many requests are heard before readers are served: a flood of them takes 1 ms of a turn."""

_TURN_MESSAGES = 32

Message = list[bytes]


class Router(Protocol):
    """Where replays are asked for and answered."""

    def receive(self) -> Message | None:
        """The next request, with its reader's name in front; None if there is none now."""
        ...

    def send(self, reader: bytes, message: Message) -> bool:
        """False if the reader has no room. Raises ReaderGone."""
        ...


class ReaderGone(Exception):
    """Nobody is there who could take an answer."""


class _Reader:
    """One who has asked, and how far he has been answered."""

    def __init__(self, now: float) -> None:
        self.answers: deque[Iterator[Message | None]] = deque()
        self.unsent: Message | None = None
        self.took_s = now
        self.stalled = False


class Replays:
    """All readers that are being answered."""

    def __init__(
        self,
        router: Router,
        history: History,
        row: Row,
        *,
        rank: int,
        form: ReplayForm,
        topic: bytes,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._router, self._history, self._row = router, history, row
        self._rank, self._form, self._topic = rank, form, topic
        self._clock, self._wall_clock = clock, wall_clock
        self._readers: dict[bytes, _Reader] = {}

    def __len__(self) -> int:
        return len(self._readers)

    @property
    def can_go_on(self) -> bool:
        """Whether some reader has room, as far as is known."""
        return any(not reader.stalled for reader in self._readers.values())

    def run(self) -> None:
        """Hear some requests, and answer for SLICE_S."""
        until_s = self._clock() + SLICE_S
        for _ in range(_HEARD_AT_ONCE):
            frames = self._router.receive()
            if frames is None:
                break
            self._hear(frames)
        for reader in self._readers.values():
            reader.stalled = False
        while self._clock() < until_s and self.can_go_on:
            for name, reader in list(self._readers.items()):
                if not reader.stalled and self._clock() < until_s:
                    self._readers[name] = self._readers.pop(name)  # next time the others come first
                    self._serve(name, reader, until_s)

    def _hear(self, frames: Message) -> None:
        try:
            name, start = read_request(frames)
            reader = self._readers.get(name) or _Reader(self._clock())
            if len(reader.answers) >= MAX_REQUESTS or (name not in self._readers and len(self) >= MAX_READERS):
                raise BadMessage(f"a request too many, with {len(self)} readers")
        except BadMessage as error:
            self._row.add("kv_event_bad_requests")
            if self._row["kv_event_bad_requests"] == 1:
                log.warning("ignored a request for a replay: %s; later ones are only counted", error)
            return
        self._row.add("kv_event_replay_requests")
        reader.answers.append(self._answer_from(start))
        self._readers[name] = reader

    def _serve(self, name: bytes, reader: _Reader, until_s: float) -> None:
        """Some messages for one reader, as far as he has room."""
        try:
            for _ in range(_TURN_MESSAGES):
                if self._clock() >= until_s:
                    return
                if reader.unsent is None:
                    reader.unsent = next(reader.answers[0], None)
                    if reader.unsent is None:
                        return
                if not self._router.send(name, reader.unsent):
                    self._stall(name, reader)
                    return
                self._sent(name, reader)
                if not reader.answers:
                    return
        except ReaderGone:
            self._readers.pop(name, None)

    def _sent(self, name: bytes, reader: _Reader) -> None:
        """A reader has taken a message: his last one, if it is an end behind which he waits for nothing."""
        assert reader.unsent is not None
        ended = reader.unsent == end_frames(self._form)
        reader.unsent, reader.took_s = None, self._clock()
        if not ended:
            self._row.add("kv_event_replay_batches")
            return
        reader.answers.popleft()
        if not reader.answers:
            del self._readers[name]

    def _stall(self, name: bytes, reader: _Reader) -> None:
        reader.stalled = True
        if self._clock() - reader.took_s > STALLED_S:
            del self._readers[name]
            self._row.add("kv_event_replay_dropped")
            log.warning("gave up the replay to a reader who took nothing for %g s", STALLED_S)

    # What is answered

    def _answer_from(self, start: int) -> Iterator[Message | None]:
        """The messages of an answer in order, and None where there is more work before the next one."""
        oldest, kept = self._history.oldest, self._history.since(start)
        if start >= oldest:
            return self._answer(start, kept, None)
        self._row.add("kv_event_snapshot_replies")
        first = start if oldest - start <= MAX_EMPTY else oldest - 1
        return self._answer(first, kept, self._history.snapshot(self._wall_clock()))

    def _answer(self, first: int, kept: list[Kept], snapshot: Snapshot | None) -> Iterator[Message | None]:
        if snapshot is not None:
            nothing = joined(self._wall_clock(), (), self._rank)
            before = kept[0].number - 1
            for number in range(first, before):
                yield self._frames(number, nothing)
            while not snapshot.payload:
                snapshot.work()
                yield None
            yield self._frames(before, snapshot.payload)
        for batch in kept:
            yield self._frames(batch.number, batch.payload)
        yield end_frames(self._form)

    def _frames(self, number: int, payload: bytes) -> Message:
        return answer_frames(self._form, self._topic, number, payload)
