"""Answers those who ask for batches again: in slices between the live ones, a few messages of each reader in turn.

A reader who takes nothing holds up nobody else, and is given up after a while; so is one who is so slow that batches
are held for him alone. What he is answered is in answers.py.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Protocol

from ...common.errors import BadMessage
from ...common.log import Seldom
from ...ipc.board import Row
from ...ipc.replay import ReplayForm, read_request
from .answers import Answer, Message
from .history import History

log = logging.getLogger("fourstroke")

SLICE_S = 0.002
"""So long at most readers are served before live batches are looked for again."""

STALLED_S = 30.0
"""A reader who takes nothing for so long is given up."""

MAX_READERS = 64
MAX_REQUESTS = 16
"""Of one reader, which are answered one after the other."""

MOST_BEHIND = 1000
"""So many batches that the ring has forgotten, or as many as it has places, are held for slow readers."""

_HEARD_AT_ONCE = 100
"""So many requests are heard before readers are served: a flood of them takes 1 ms of a turn."""

_TURN_MESSAGES = 32


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
        self.starts: deque[int] = deque()
        self.answer: Answer | None = None
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
        self._answer = partial(Answer, history, rank=rank, form=form, topic=topic, wall_clock=wall_clock)
        self._clock = clock
        self._readers: dict[bytes, _Reader] = {}
        self._warning = Seldom(clock)

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
        self._give_up_the_slowest()
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
            if len(reader.starts) >= MAX_REQUESTS or (name not in self._readers and len(self) >= MAX_READERS):
                raise BadMessage(f"a request too many, with {len(self)} readers")
        except BadMessage as error:
            self._row.add("kv_event_bad_requests")
            if self._row["kv_event_bad_requests"] == 1:
                log.warning("ignored a request for a replay: %s; later ones are only counted", error)
            return
        self._row.add("kv_event_replay_requests")
        reader.starts.append(start)
        self._readers[name] = reader

    def _serve(self, name: bytes, reader: _Reader, until_s: float) -> None:
        """Some messages for one reader, as far as he has room."""
        try:
            for _ in range(_TURN_MESSAGES):
                if self._clock() >= until_s:
                    return
                if reader.unsent is None:
                    reader.unsent = self._next_message(reader)
                    if reader.unsent is None:
                        return
                if not self._router.send(name, reader.unsent):
                    self._stall(name, reader)
                    return
                self._sent(name, reader)
                if name not in self._readers:
                    return
        except ReaderGone:
            self._readers.pop(name, None)

    def _next_message(self, reader: _Reader) -> Message | None:
        """What a reader is to be sent next; None if there is more work before it."""
        if reader.answer is None:
            start = reader.starts.popleft()
            reader.answer = self._answer(start)
            if start < self._history.oldest:
                self._row.add("kv_event_snapshot_replies")
        return reader.answer.next_message()

    def _sent(self, name: bytes, reader: _Reader) -> None:
        """A reader has taken a message: his last one, if it is an end behind which he waits for nothing."""
        assert reader.answer is not None
        reader.unsent, reader.took_s = None, self._clock()
        if not reader.answer.ended:
            self._row.add("kv_event_replay_batches")
            return
        reader.answer = None
        if not reader.starts:
            del self._readers[name]

    def _stall(self, name: bytes, reader: _Reader) -> None:
        reader.stalled = True
        if self._clock() - reader.took_s > STALLED_S:
            self._give_up(name, f"took nothing for {STALLED_S:g} s")

    def _give_up_the_slowest(self) -> None:
        """Hold no more for readers than a second ring."""
        needed = self._history.oldest - max(MOST_BEHIND, self._history.capacity)
        for name, reader in list(self._readers.items()):
            if reader.answer is not None and reader.answer.needs < needed:
                self._give_up(name, "was too slow")

    def _give_up(self, name: bytes, why: str) -> None:
        del self._readers[name]
        self._row.add("kv_event_replay_dropped")
        if self._warning.is_due():
            log.warning("gave up the replay to a reader who %s", why)
