"""An answer to a request for a replay, message by message: the batches from a number on, and an end.

Of batches that are not kept any more the numbers are sent, with nothing in them, and then the state to which they have
led. Which batches those are is fixed when the first one is due that is kept; an answer that has not come so far holds
nothing. Readers and their pace are in replays.py.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterator

from ...ipc.event_codec import joined
from ...ipc.replay import ReplayForm, answer_frames, end_frames
from .history import History, Kept

MAX_EMPTY = 1_000_000
"""With more batches missing the answer begins with the snapshot."""

Message = list[bytes]


class Answer:
    """The batches from `start` on. `needs` is the number of the oldest one that it holds; `ended`: the last message
    was its end.
    """

    def __init__(
        self,
        history: History,
        start: int,
        *,
        rank: int,
        form: ReplayForm,
        topic: bytes,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._history, self._rank = history, rank
        self._form, self._topic, self._wall_clock = form, topic, wall_clock
        self._messages = self._made(start)
        self.needs: float = math.inf
        self.ended = False

    def next_message(self) -> Message | None:
        """The next message, after less than 1 ms; None if there is more work before it."""
        return next(self._messages)

    def _made(self, start: int) -> Iterator[Message | None]:
        if start < self._history.oldest:
            yield from self._instead(start)
        else:
            yield from self._kept(deque(self._history.since(start)))
        self.ended = True
        yield end_frames(self._form)

    def _instead(self, start: int) -> Iterator[Message | None]:
        """Numbers without batches as far as the oldest one that is kept, the state before it, and what is kept."""
        history, number = self._history, start
        if history.oldest - start > MAX_EMPTY:
            number = history.oldest - 1
        nothing = joined(self._wall_clock(), (), self._rank)
        while number < history.oldest - 1:
            yield self._frames(number, nothing)
            number += 1
        snapshot, kept = history.snapshot(self._wall_clock()), deque(history.since(history.oldest))
        self.needs = history.oldest
        while not snapshot.payload:
            snapshot.work()
            yield None
        yield self._frames(number, snapshot.payload)
        del snapshot
        yield from self._kept(kept)

    def _kept(self, kept: deque[Kept]) -> Iterator[Message]:
        while kept:
            batch = kept.popleft()
            self.needs = batch.number
            yield self._frames(batch.number, batch.payload)
        self.needs = math.inf

    def _frames(self, number: int, payload: bytes) -> Message:
        return answer_frames(self._form, self._topic, number, payload)
