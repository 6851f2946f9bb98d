"""The ways to the outputs: tokens into a ring, the message onto a wire, and what waits for room.

Called by the loop, once or twice in each turn. Each output has its own ring and wire, of which this is the one
writer; which output a request has, ipc/request_ids.py says.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from ...ipc.messages import Emit, Opened
from ...ipc.ring import TokenRing
from ...ipc.wire import Outbox
from .results.emission import Emission
from .results.sharing import shares

MAX_WAITING_EMISSIONS = 64
"""So many steps' tokens may wait for room in a ring or on a wire to output; then planning stops."""

MAX_TICKET_BYTES = 1 << 20
"""An Emit carries at most so many bytes of tickets and one more ticket: a frame has a largest size."""


class OutputWay:
    """The way to one output."""

    def __init__(self, wire: Outbox, ring: TokenRing) -> None:
        self._wire = wire
        self._ring = ring
        self._unsent: deque[Emission] = deque()

    @property
    def behind(self) -> bool:
        """Whether tokens wait for room in the ring."""
        return bool(self._unsent)

    @property
    def full(self) -> bool:
        """Whether so much waits that no more should be made."""
        return len(self._unsent) + self._wire.waiting >= MAX_WAITING_EMISSIONS

    @property
    def ring_tokens(self) -> int:
        return self._ring.used

    def add(self, emission: Emission) -> None:
        """Have an emission sent by the next `push`."""
        self._unsent.append(emission)

    def push(self) -> None:
        """Send what waits, in order, as far as the ring has room."""
        while self._unsent:
            emission = self._unsent[0]
            new = emission.new
            position = self._ring.write(new.tokens)
            if position is None:
                return
            self._unsent.popleft()
            *earlier, last = _portions(emission.first_words)
            for opened in earlier:
                self._wire.send(Emit(opened, b"", b"", position, 0))
            self._wire.send(
                Emit(
                    last,
                    new.rids.tobytes(),
                    new.counts.tobytes(),
                    position,
                    len(new.tokens),
                    emission.ended.message,
                    new.logprobs,
                    emission.prompt_logprobs,
                )
            )


class Outputs:
    """All of them, in the order of their numbers."""

    def __init__(self, ways: Sequence[OutputWay]) -> None:
        self._ways = ways

    @property
    def behind(self) -> bool:
        """Whether tokens wait for room in a ring. Room on a wire wakes the loop by itself."""
        return any(way.behind for way in self._ways)

    @property
    def have_room(self) -> bool:
        """Whether every output keeps up: whom a step will tell of is known only after it."""
        return not any(way.full for way in self._ways)

    @property
    def ring_tokens(self) -> int:
        return sum([way.ring_tokens for way in self._ways])

    def send(self, emissions: Iterable[Emission]) -> None:
        """Send emissions, and what waits from before, in order, as far as there is room."""
        for emission in emissions:
            for output, share in shares(emission, len(self._ways)):
                self._ways[output].add(share)
        for way in self._ways:
            way.push()


def _portions(opened: tuple[Opened, ...]) -> list[tuple[Opened, ...]]:
    """Cut first words into portions of bounded size, in order; at least one, perhaps empty."""
    portions: list[list[Opened]] = [[]]
    size = 0
    for one in opened:
        if size > MAX_TICKET_BYTES:
            portions.append([])
            size = 0
        portions[-1].append(one)
        size += len(one.ticket)
    return [tuple(portion) for portion in portions]
