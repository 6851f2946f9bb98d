"""The way to the scheduler: in order, nothing lost, nothing sent that was taken back or came too late."""

import math
from collections.abc import Callable

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fourstroke.common.types import Finish
from fourstroke.ipc import codec
from fourstroke.ipc.messages import Abort, CacheKeys, Limits, ResetCache, Sampling, Submit, Ticket
from fourstroke.ipc.ring import TokenRing, ring_bytes
from fourstroke.ipc.wire import memory_wire
from fourstroke.procs.ingest.live import Choice, LiveRequest
from fourstroke.procs.ingest.submit import Submitter

CAPACITY = 20


class Line:
    """A submitter, the other end of its wire and ring, its clock, and how often it asked to be called again."""

    def __init__(self, high_water_mark: int = 100) -> None:
        self.ring = TokenRing(bytearray(ring_bytes(CAPACITY)))
        outbox, self.inbox = memory_wire("scheduler0", Submit, Abort, ResetCache, high_water_mark=high_water_mark)
        self.asked = 0
        self.now_s = 100.0
        self.submitter = Submitter("ingest0", self.ring, outbox, self._ask, lambda: self.now_s)

    def _ask(self) -> None:
        self.asked += 1

    def arrived(self, each: Callable[[Submit], object] = lambda _: None) -> list[tuple[tuple[int, ...], list[int]]]:
        """What the scheduler finds: the ids and the prompt of each Submit, or an Abort's id and nothing."""
        found: list[tuple[tuple[int, ...], list[int]]] = []
        for message in self.inbox.drain():
            if isinstance(message, Submit):
                each(message)
                found.append((message.rids, self.ring.take(message.prompt_at, message.prompt_tokens).tolist()))
            else:
                found.append(((message.rid,), []))
        return found


def choices(first: int, length: int, count: int = 1, deadline_s: float = math.inf) -> list[Choice]:
    """Choices of a prompt that consists of the first one's id; the ids of the others follow on it."""
    keys = CacheKeys(salt="s")
    request = LiveRequest("r", ("stop",), True, False, keys=keys, priority=-3, deadline_s=deadline_s)
    prompt = np.full(length, first, np.int32)
    sampling, limits = Sampling(0.5, 1, 0.9, 0.1), Limits(5, 2, True, (3,))
    return [
        Choice(request, first + number, 70 + number, number, 0, prompt, b"d" * 32, sampling, limits)
        for number in range(count)
    ]


def test_message() -> None:
    """One Submit carries all choices of a prompt, which is in the ring once, and a ticket that says where to reply."""
    line = Line()
    three = choices(9, 3, count=3)
    line.submitter.submit(three)
    (message,) = line.inbox.drain()
    assert (message.rids, message.seeds, message.prompt_tokens) == ((9, 10, 11), (70, 71, 72), 3)
    assert (message.sampling, message.limits) == (three[0].sampling, three[0].limits)
    assert (message.digests, message.keys, message.priority) == (b"d" * 32, CacheKeys(salt="s"), -3)
    assert message.timeout_s == 0
    assert codec.decode(message.ticket, Ticket) == Ticket("ingest0", ("stop",), True, False, 2)
    assert line.ring.used == 3
    assert line.asked == 0


@given(st.lists(st.tuples(st.integers(1, CAPACITY), st.integers(1, 3), st.booleans()), max_size=30), st.integers(1, 5))
def test_order_is_kept(plan: list[tuple[int, int, bool]], high_water_mark: int) -> None:
    """Whatever the lengths, and however full ring and wire are: all prompts arrive, whole and in order.

    The flag of a step says whether the scheduler reads after it.
    """
    line = Line(high_water_mark)
    arrived = []
    for number, (length, count, reads) in enumerate(plan):
        line.submitter.submit(choices(10 * number, length, count))
        if reads:
            arrived += line.arrived()
            line.submitter.retry()
    for _ in plan:
        arrived += line.arrived()
        line.submitter.retry()
    assert arrived == [
        (tuple(range(10 * number, 10 * number + count)), [10 * number] * length)
        for number, (length, count, _) in enumerate(plan)
    ]


def test_asks_to_be_called_while_something_waits() -> None:
    """A timer is asked for as long as a prompt waits for room, and no longer."""
    line = Line()
    line.submitter.submit(choices(1, CAPACITY))
    assert line.asked == 0
    line.submitter.submit(choices(2, 1))
    line.submitter.retry()
    assert line.asked == 2
    line.arrived()
    line.submitter.retry()
    assert line.asked == 2
    assert line.arrived() == [((2,), [2])]


def test_abort_in_the_backlog() -> None:
    """A choice that is taken back while it waits never reaches the scheduler; the others do, its siblings too."""
    line = Line()
    waiting = [choices(10 * number, 8, count=2) for number in range(5)]
    for one in waiting:
        line.submitter.submit(one)
    taken_back = [waiting[2][0], *waiting[3]]
    assert [line.submitter.abort(choice, Finish.ABORT, 0) for choice in taken_back] == [False] * 3
    assert line.submitter.abort(waiting[0][0], Finish.ABORT, 0)
    found = []
    for _ in range(2):
        found += line.arrived()
        assert line.submitter.retry() == []
    assert [rids for rids, _ in found] == [(0, 1), (10, 11), (0,), (21,), (40, 41)]


def test_time_that_is_left() -> None:
    """A request has its whole time from its arrival: what it has waited here is no longer told to the scheduler."""
    line = Line()
    line.submitter.submit(choices(1, CAPACITY, deadline_s=107.5))
    line.submitter.submit(choices(2, CAPACITY, deadline_s=110.0))
    told: list[float] = []
    line.arrived(lambda submit: told.append(submit.timeout_s))
    line.now_s = 106.0
    assert line.submitter.retry() == []
    line.arrived(lambda submit: told.append(submit.timeout_s))
    assert told == [7.5, 4.0]


def test_time_is_up_in_the_backlog() -> None:
    """Choices whose time is up while they wait are given back, wherever they stand, and never sent."""
    line = Line()
    late = choices(20, 1, count=2, deadline_s=110.0)
    for one in (choices(10, CAPACITY), late, choices(30, 1), too_late := choices(40, 1, deadline_s=100.0)):
        line.submitter.submit(one)
    assert line.submitter.retry() == too_late
    line.now_s = 110.0
    assert line.submitter.retry() == late
    assert line.submitter.retry() == []
    line.arrived()
    line.submitter.retry()
    assert line.arrived() == [((30,), [30])]


def test_time_is_up_before_it_is_sent() -> None:
    """A request whose time is up when it comes here is not sent although there is room, and given back soon."""
    line = Line()
    line.submitter.submit(late := choices(1, 1, deadline_s=99.0))
    assert line.arrived() == []
    assert line.asked == 1
    assert line.submitter.retry() == late
    line.submitter.submit(choices(2, 1))
    assert line.arrived() == [((2,), [2])]


def test_reset_of_the_cache() -> None:
    """A reset carries a ticket of its own, so that its answer finds the way back."""
    line = Line()
    line.submitter.reset_cache(5, True)
    (message,) = line.inbox.drain()
    assert (message.rid, message.force) == (5, True)
    assert codec.decode(message.ticket, Ticket) == Ticket("ingest0", (), False, True, 0)
