"""Handing prompts to the scheduler: the ids into the ring, the message onto the wire, in order.

All choices of a prompt go in one message. A choice that has tokens already, from an engine that died, goes with them
behind its prompt. When the ring is full, prompts wait here, first come, first served; a choice that is aborted
meanwhile is dropped, and one whose time is up is given back. Who calls: the router; `retry` is called when text
arrives, and by a timer that is asked for as long as anything waits.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Sequence

import numpy as np

from ...common.types import Finish
from ...ipc import codec
from ...ipc.messages import Abort, ResetCache, Submit, Ticket
from ...ipc.ring import TokenRing, Tokens
from ...ipc.wire import Outbox
from .live import Choice


class Submitter:
    """The way to one scheduler."""

    def __init__(
        self,
        name: str,
        ring: TokenRing,
        outbox: Outbox,
        retry_later: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`name` is this process, to which output sends the text; `retry_later` has `retry` called soon."""
        self._name = name
        self._ring = ring
        self._outbox = outbox
        self._retry_later = retry_later
        self._clock = clock
        self._backlog: deque[list[Choice]] = deque()

    @property
    def prompt_capacity(self) -> int:
        """Tokens of the longest run that can be handed over: a prompt and what was generated behind it."""
        return self._ring.capacity

    @property
    def ring_tokens(self) -> int:
        return self._ring.used

    @property
    def waiting(self) -> frozenset[int]:
        """The ids of the choices that wait here: the scheduler has not heard of them."""
        return frozenset(choice.rid for choices in self._backlog for choice in choices)

    def submit(self, choices: list[Choice]) -> None:
        """Send the choices of a prompt, or keep them until there is room for it."""
        if self._backlog or not self._send(choices):
            self._backlog.append(choices)
        self._watch()

    def resubmit(self, submissions: Sequence[list[Choice]]) -> None:
        """Send what was sent before, to a scheduler that has it no more, before all that came later and waits."""
        self._backlog.extendleft(reversed(submissions))
        self._push()

    def abort(self, choice: Choice, reason: Finish, keep: int) -> bool:
        """End a choice; false if it was still waiting here, so that the scheduler never hears of it."""
        for waiting in self._backlog:
            if choice in waiting:
                waiting.remove(choice)
                if not waiting:
                    self._backlog.remove(waiting)
                return False
        self._outbox.send(Abort(choice.rid, reason, keep))
        self._watch()
        return True

    def reset_cache(self, rid: int, force: bool) -> None:
        """Have the prefix cache forgotten. The answer is the ending of `rid`."""
        ticket = Ticket(self._name, stop=(), include_stop=False, skip_special=True, min_tokens=0)
        self._outbox.send(ResetCache(rid, force, codec.encode(ticket)))
        self._watch()

    def retry(self) -> list[Choice]:
        """Send what waits, as far as there is room. Returns the choices whose time was up before."""
        self._outbox.flush()
        late = self._take_late()
        self._push()
        return late

    def _push(self) -> None:
        while self._backlog and self._send(self._backlog[0]):
            self._backlog.popleft()
        self._watch()

    def _take_late(self) -> list[Choice]:
        late = [choices for choices in self._backlog if self._time_left_s(choices[0]) <= 0]
        for choices in late:
            self._backlog.remove(choices)
        return [choice for choices in late for choice in choices]

    def _time_left_s(self, choice: Choice) -> float:
        return choice.request.deadline_s - self._clock()

    def _send(self, choices: list[Choice]) -> bool:
        first, request = choices[0], choices[0].request
        left_s = self._time_left_s(first)
        position = self._ring.write(_run(first)) if left_s > 0 else None
        if position is None:
            return False
        self._outbox.send(
            Submit(
                rids=tuple(choice.rid for choice in choices),
                seeds=tuple(choice.seed for choice in choices),
                prompt_at=position,
                prompt_tokens=len(first.prompt),
                digests=first.digests,
                keys=request.keys,
                sampling=first.sampling,
                limits=first.limits,
                priority=request.priority,
                timeout_s=0.0 if left_s == math.inf else left_s,
                ticket=self._ticket(first),
                generated_tokens=first.generated_tokens,
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
                markers=request.speech.markers if request.speech else (),
                generated=bytes(choice.generated),
            )
        )

    def _watch(self) -> None:
        if self._backlog or self._outbox.waiting:
            self._retry_later()


def _run(choice: Choice) -> Tokens:
    """The prompt of a choice and the tokens that it has."""
    if not choice.generated:
        return choice.prompt
    return np.concatenate([choice.prompt, np.frombuffer(choice.generated, np.int32)])
