"""The way to the scheduler: in order, nothing lost, nothing sent that was taken back."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fourstroke.common.types import Finish
from fourstroke.ipc import codec
from fourstroke.ipc.messages import Abort, Limits, Sampling, Submit, Ticket
from fourstroke.ipc.ring import TokenRing, ring_bytes
from fourstroke.ipc.wire import memory_wire
from fourstroke.procs.ingest.live import Choice, LiveRequest
from fourstroke.procs.ingest.submit import Submitter

CAPACITY = 20
REQUEST = LiveRequest("r", ("stop",), True, False)


class Line:
    """A submitter, the other end of its wire and ring, and how often it asked to be called again."""

    def __init__(self, high_water_mark: int = 100) -> None:
        self.ring = TokenRing(bytearray(ring_bytes(CAPACITY)))
        outbox, self.inbox = memory_wire("scheduler0", Submit, Abort, high_water_mark=high_water_mark)
        self.asked = 0
        self.submitter = Submitter("ingest0", self.ring, outbox, self._ask)

    def _ask(self) -> None:
        self.asked += 1

    def arrived(self) -> list[tuple[int, list[int]] | Abort]:
        """What the scheduler finds: (rid, prompt) of each Submit, and Aborts."""
        found: list[tuple[int, list[int]] | Abort] = []
        for message in self.inbox.drain():
            if isinstance(message, Submit):
                found.append((message.rid, self.ring.take(message.prompt_at, message.prompt_tokens).tolist()))
            else:
                found.append(message)
        return found


def choice(rid: int, length: int) -> Choice:
    prompt = np.full(length, rid, np.int32)
    return Choice(REQUEST, rid, 0, 0, prompt, Sampling(0.5, 1, 0.9, 0.1, 7), Limits(5, 2, True, (3,)))


def test_message() -> None:
    """A Submit carries all of the choice, and a ticket for output that says where to reply."""
    line = Line()
    one = choice(9, 3)
    line.submitter.submit(one)
    (message,) = line.inbox.drain()
    assert (message.rid, message.epoch, message.prompt_tokens) == (9, 0, 3)
    assert (message.sampling, message.limits) == (one.sampling, one.limits)
    assert codec.decode(message.ticket, Ticket) == Ticket("ingest0", ("stop",), True, False, 2)
    assert line.asked == 0


@given(st.lists(st.tuples(st.integers(1, CAPACITY), st.booleans()), max_size=30), st.integers(1, 5))
def test_order_is_kept(plan: list[tuple[int, bool]], high_water_mark: int) -> None:
    """Whatever the lengths, and however full ring and wire are: all prompts arrive, whole and in order.

    The flag of a step says whether the scheduler reads after it.
    """
    line = Line(high_water_mark)
    arrived = []
    for rid, (length, reads) in enumerate(plan):
        line.submitter.submit(choice(rid, length))
        if reads:
            arrived += line.arrived()
            line.submitter.retry()
    for _ in plan:
        arrived += line.arrived()
        line.submitter.retry()
    assert arrived == [(rid, [rid] * length) for rid, (length, _) in enumerate(plan)]


def test_asks_to_be_called_while_something_waits() -> None:
    """A timer is asked for as long as a choice waits for room, and no longer."""
    line = Line()
    line.submitter.submit(choice(1, CAPACITY))
    assert line.asked == 0
    line.submitter.submit(choice(2, 1))
    line.submitter.retry()
    assert line.asked == 2
    line.arrived()
    line.submitter.retry()
    assert line.asked == 2
    assert line.arrived() == [(2, [2])]


def test_abort_in_the_backlog() -> None:
    """A choice that is taken back while it waits never reaches the scheduler; the others do."""
    line = Line()
    waiting = [choice(rid, 8) for rid in range(5)]
    for one in waiting:
        line.submitter.submit(one)
    assert not line.submitter.abort(waiting[3], Finish.ABORT, 0)
    assert line.submitter.abort(waiting[0], Finish.ABORT, 0)
    found = line.arrived()
    line.submitter.retry()
    found += line.arrived()
    assert [one if isinstance(one, Abort) else one[0] for one in found] == [0, 1, Abort(0, 0, Finish.ABORT, 0), 2, 4]
