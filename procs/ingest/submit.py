"""Handing choices to the scheduler: the prompt into the ring, the message onto the wire, in order.

When the ring is full, choices wait here, first come, first served; one that is aborted meanwhile is
dropped. Who calls: the table of live requests; `retry` is called when text arrives, and by a timer that
is asked for as long as anything waits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from ...common.types import Finish
from ...ipc import codec
from ...ipc.messages import Abort, Submit, Ticket
from ...ipc.ring import TokenRing
from ...ipc.wire import Outbox
from .live import Choice


class Submitter:
    """The way to one scheduler."""

    def __init__(self, name: str, ring: TokenRing, outbox: Outbox, retry_later: Callable[[], None]) -> None:
        """`name` is this process, to which output sends the text; `retry_later` has `retry` called soon."""
        self._name = name
        self._ring = ring
        self._outbox = outbox
        self._retry_later = retry_later
        self._backlog: deque[Choice] = deque()

    @property
    def prompt_capacity(self) -> int:
        """Tokens of the longest prompt that can be handed over."""
        return self._ring.capacity

    @property
    def ring_tokens(self) -> int:
        return self._ring.used

    def submit(self, choice: Choice) -> None:
        """Send a choice, or keep it until there is room for its prompt."""
        if self._backlog or not self._send(choice):
            self._backlog.append(choice)
        self._watch()

    def abort(self, choice: Choice, reason: Finish, keep: int) -> bool:
        """End a choice; false if it was still waiting here, so that the scheduler never hears of it."""
        if choice in self._backlog:
            self._backlog.remove(choice)
            return False
        self._outbox.send(Abort(choice.rid, choice.epoch, reason, keep))
        self._watch()
        return True

    def retry(self) -> None:
        """Send what waits, as far as there is room."""
        self._outbox.flush()
        while self._backlog and self._send(self._backlog[0]):
            self._backlog.popleft()
        self._watch()

    def _send(self, choice: Choice) -> bool:
        position = self._ring.write(choice.prompt)
        if position is None:
            return False
        self._outbox.send(
            Submit(
                rid=choice.rid,
                epoch=choice.epoch,
                prompt_at=position,
                prompt_tokens=len(choice.prompt),
                sampling=choice.sampling,
                limits=choice.limits,
                ticket=self._ticket(choice),
            )
        )
        return True

    def _ticket(self, choice: Choice) -> bytes:
        request = choice.request
        return codec.encode(
            Ticket(
                reply_to=self._name,
                stop=request.stop,
                include_stop=request.include_stop,
                skip_special=request.skip_special,
                min_tokens=choice.limits.min_tokens,
            )
        )

    def _watch(self) -> None:
        if self._backlog or self._outbox.waiting:
            self._retry_later()
