"""Follows one publisher's stream: puts its batches in order, asks for those that are missing, notices what went wrong.

It begins with a replay from 0, which gives the exact state at any time. Live batches that come meanwhile wait. Where
something is missing, or the connection was broken, the replay begins with the last batch that is known: another process
would have another one there, and then all begins anew. But a batch that the publisher does not keep any more is
answered by an empty one, too, and then comes the whole state: that is as good as all batches.

Pure: subscriber.py has the sockets and the clock, sends what `requests` has, and passes what arrives.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from ..common.errors import BadMessage
from .event_codec import decode_batch
from .events import Batch
from .replay import read_answer, read_live

MAX_WAITING = 10_000
MAX_WAITING_BYTES = 64 << 20
"""So much of what is live waits for a replay; what comes then is passed over, and asked for again."""

TRIES = 3
"""So often the same is asked for when no answer comes."""


@dataclass(frozen=True, slots=True)
class Received:
    """A batch, in its place. `replayed`: it was asked for, and may have been published long ago."""

    number: int
    batch: Batch
    replayed: bool


@dataclass(frozen=True, slots=True)
class Restarted:
    """The publisher is another process: what was known of its cache is void. A replay from 0 follows."""


@dataclass(frozen=True, slots=True)
class Lost:
    """The batches first..end-1 cannot be had: what is known of the cache may be wrong until it is cleared."""

    first: int
    end: int


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A batch, or a frame without a number (-1), that made no sense."""

    number: int
    cause: str


@dataclass(frozen=True, slots=True)
class Silent:
    """Nothing has come for this long, in which there should have been heartbeats."""

    seconds: float


Item = Received | Restarted | Lost | Unreadable | Silent


class Follower:
    """The stream of a publisher. `replays`: there is a socket at which batches can be asked for.

    `renew`: answers that are on their way are void, so that a new socket is needed before the next request.
    """

    def __init__(self, *, replays: bool) -> None:
        self.requests: list[int] = []
        self.renew = False
        self._replays = replays
        self._waiting: deque[tuple[int, bytes]] = deque()  # live ones, whose numbers rise
        self._waiting_bytes = 0
        self._next = 0
        self._asked: int | None = None
        self._next_when_asked, self._heard, self._tries = 0, False, 0
        self._doubting = False
        self._last = b""
        self._last_ts = self._last_live = -1.0
        self._ask(0)

    @property
    def asking(self) -> bool:
        """Whether an answer is awaited."""
        return self._asked is not None

    def live(self, frames: Sequence[bytes]) -> list[Item]:
        """A published message has come; returns what it leads to."""
        try:
            number, payload = read_live(frames)
            batch = decode_batch(payload) if number < self._next else None
        except BadMessage as error:
            return [Unreadable(-1, str(error))]
        items: list[Item] = []
        if number <= self._last_live or (batch is not None and batch.ts > self._last_ts):
            items = self._start_anew()
        elif batch is not None:
            self._last_live = number
            return []  # the replay was faster
        self._last_live = number
        self._wait(number, payload)
        return items if self.asking else items + self._go_on()

    def replayed(self, frames: Sequence[bytes]) -> list[Item]:
        """A message of an answer has come; returns what it leads to."""
        try:
            answer = read_answer(frames)
        except BadMessage as error:
            return [Unreadable(-1, str(error))]
        self._tries = 0
        if answer is None:
            return self._answer_ended()
        number, payload = answer
        self._heard = True
        if number < self._next:
            return self._compare(number, payload) if number == self._next - 1 == self._asked else []
        if self._doubting and not _is_empty(payload):
            if not _begins_with_nothing(payload):
                return self._start_anew()
            self._doubting = False
        items = self._missed(number, payload)
        return [*items, *self._accept(number, payload, replayed=True)]

    def doubt(self) -> None:
        """The connection was broken: look whether it is the same process that publishes now.

        What was asked for may be lost with it, and what waits may come from a dead one.
        """
        self._doubting = self._next > 0
        self._clear_waiting()
        self._ask_again()

    def gave_up(self) -> list[Item]:
        """No answer came in time: ask again some times, and then go on with what there is.

        If that may come from another process than what was known before, all begins anew.
        """
        self._tries += 1
        if self._tries < TRIES:
            self._ask_again()
            return []
        self._tries = 0
        if self._doubting:
            return self._start_anew()
        self._asked, self.renew = None, True
        self.requests.clear()
        return self._go_on(lossy=True)

    def _compare(self, number: int, payload: bytes) -> list[Item]:
        """The last batch that is known was answered: by itself, by what stands for it now, or by another process's."""
        if payload == self._last:
            self._doubting = False
        elif _is_empty(payload):
            self._doubting = True
        elif number > 0 and _begins_with_nothing(payload):
            self._doubting = False
            return self._accept(number, payload, replayed=True)
        else:
            return self._start_anew()
        return []

    def _answer_ended(self) -> list[Item]:
        """All that could be had was had; if there still is a gap, it cannot be filled."""
        asked, self._asked = self._asked, None
        if asked is None:
            return []
        if self._doubting or (asked < self._next and not self._heard):
            return self._start_anew()  # it has not what we know
        return self._go_on(lossy=self._next == self._next_when_asked)

    def _wait(self, number: int, payload: bytes) -> None:
        if len(self._waiting) < MAX_WAITING and self._waiting_bytes < MAX_WAITING_BYTES:
            self._waiting.append((number, payload))
            self._waiting_bytes += len(payload)

    def _clear_waiting(self) -> None:
        self._waiting.clear()
        self._waiting_bytes = 0

    def _go_on(self, lossy: bool = False) -> list[Item]:
        """Take live batches as far as they follow; ask for what is missing, or with `lossy` pass over it."""
        items: list[Item] = []
        while self._waiting:
            number, payload = self._waiting[0]
            if number > self._next:
                if self._replays and not lossy:
                    self._ask(max(0, self._next - 1))
                    break
                items += self._missed(number, payload)
                lossy = False
            self._waiting.popleft()
            self._waiting_bytes -= len(payload)
            if number >= self._next:
                items += self._accept(number, payload, replayed=False)
        return items

    def _missed(self, number: int, payload: bytes) -> list[Item]:
        """Whether batches before this one are lost: not if it tells the whole state."""
        if number <= self._next or _begins_with_nothing(payload):
            return []
        return [Lost(self._next, number)]

    def _accept(self, number: int, payload: bytes, *, replayed: bool) -> list[Item]:
        self._next, self._last = number + 1, payload
        try:
            batch = decode_batch(payload)
        except BadMessage as error:
            return [Unreadable(number, str(error))]
        self._last_ts = batch.ts
        return [Received(number, batch, replayed)]

    def _start_anew(self) -> list[Item]:
        self._clear_waiting()
        self._next, self._last, self._last_ts, self._last_live = 0, b"", -1.0, -1.0
        self._doubting = False
        self._ask_again()
        return [Restarted()]

    def _ask_again(self) -> None:
        """Ask at a new socket, so that no answer to what was asked for before is mistaken for this one."""
        self.renew = True
        self.requests.clear()
        self._ask(max(0, self._next - 1))

    def _ask(self, start: int) -> None:
        if self._replays:
            self._asked, self._heard, self._next_when_asked = start, False, self._next
            self.requests.append(start)


def _is_empty(payload: bytes) -> bool:
    try:
        return decode_batch(payload).is_empty
    except BadMessage:
        return False


def _begins_with_nothing(payload: bytes) -> bool:
    try:
        return decode_batch(payload).begins_cleared
    except BadMessage:
        return False
