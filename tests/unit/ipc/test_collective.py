"""Ranks of a group add up numbers: alone, in the threads of one process, and over shared memory.

The ranks of a shared group are threads here, with sockets and memory as between processes; what only a process
can do, to die or to be stopped, is in tests/process.
"""

from __future__ import annotations

import os
import random
import select
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest

from fourstroke.common.errors import CollectiveError
from fourstroke.ipc.ballot import Offer, ballot_bytes, ballot_rows
from fourstroke.ipc.collective import Alone, Collective, LocalGroup
from fourstroke.ipc.shared_collective import SharedCollective

T = TypeVar("T")

HANG_S = 30.0
"""A bound for what must not hang; no test takes that long."""

LONG_S = 4 * HANG_S
"""A time-out that no test can wait for."""

SILENCE_S = 0.25
"""The time-out where a test lets a rank be silent: more than a busy machine makes the others wait."""


class Group:
    """The memory and the sockets of a shared group."""

    def __init__(self, folder: Path, size: int) -> None:
        self.size = size
        self.memory = bytearray(ballot_bytes(size))
        self._folder = folder
        self._opened: list[SharedCollective] = []

    def rank(self, rank: int, timeout_s: float = LONG_S) -> SharedCollective:
        """A rank that has come and has not called yet."""
        collective = SharedCollective(self.memory, self._folder, rank, self.size, timeout_s)
        self._opened.append(collective)
        return collective

    def formed(self, timeout_s: float = LONG_S) -> list[SharedCollective]:
        """All ranks, after a tick in which all of them were counted."""
        ranks: list[SharedCollective] = []
        for number in range(self.size):
            ranks.append(self.rank(number, timeout_s))
            joined(ranks)
        return ranks

    def close(self) -> None:
        for collective in self._opened:
            if collective.fileno() >= 0:
                collective.close()


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Callable[[int], Group]]:
    groups: list[Group] = []

    def make(size: int) -> Group:
        groups.append(Group(tmp_path, size))
        return groups[-1]

    yield make
    for one in groups:
        one.close()


def together(calls: Sequence[Callable[[], T]]) -> list[T]:
    """Make all calls at the same time."""
    pool = ThreadPoolExecutor(len(calls))
    results = [future.result(HANG_S) for future in [pool.submit(call) for call in calls]]
    pool.shutdown()
    return results


def wait_for_call(rank: SharedCollective) -> None:
    """Sleep as an idle loop does."""
    assert select.select([rank], [], [], HANG_S)[0]
    while not rank.is_called():
        assert select.select([rank], [], [], HANG_S)[0]


def begin(rank: Collective, *values: float) -> Callable[[], list[float]]:
    """A rank that has something to plan."""
    return lambda: rank.sum(values)


def answer(rank: SharedCollective, *values: float) -> Callable[[], list[float]]:
    """An idle rank: it sleeps until a peer has begun a tick, and takes part."""

    def call() -> list[float]:
        wait_for_call(rank)
        return rank.sum(values)

    return call


def joined(ranks: Sequence[SharedCollective]) -> list[list[float]]:
    """A tick that the last rank begins and the others, idle, take part in."""
    return together([*(answer(rank, 10) for rank in ranks[:-1]), begin(ranks[-1], 1)])


def failing(call: Callable[[], object]) -> Callable[[], bool]:
    """Whether a call ends with a CollectiveError."""

    def attempt() -> bool:
        try:
            call()
        except CollectiveError:
            return True
        return False

    return attempt


def errors_until(ranks: Sequence[SharedCollective], size: int) -> list[int]:
    """The errors of ranks that plan until a group of that size has agreed 20 times, and answer until all have."""
    unfinished = set(ranks)
    read_end, write_end = os.pipe()

    def live(rank: SharedCollective) -> int:
        errors = agreed = 0
        while agreed < 20:
            failed = failing(lambda: check(rank))()
            errors += failed
            agreed += not failed and rank.size == size
        unfinished.discard(rank)
        if not unfinished:
            os.close(write_end)
        while unfinished:
            select.select([rank, read_end], [], [], HANG_S)
            if rank.is_called():
                errors += failing(lambda: check(rank))()
        return errors

    errors = together([partial(live, rank) for rank in ranks])
    os.close(read_end)
    return errors


def check(rank: SharedCollective) -> None:
    """Take part in a tick in which all say 1."""
    assert rank.sum([1, 1]) == [rank.size, rank.size]


def test_alone() -> None:
    """A group of one has its own numbers."""
    assert Alone().sum([1, 2.5]) == Alone().max([1, 2.5]) == [1, 2.5]
    assert Alone().size == 1


@pytest.mark.parametrize("kind", ["local", "shared"])
@pytest.mark.parametrize("size", [1, 2, 5])
def test_all_ranks_have_the_same_numbers(kind: str, size: int, group: Callable[[int], Group]) -> None:
    """Each rank gets the sum, or the largest, of what all have offered in this tick and no other."""
    ranks: Sequence[Collective] = LocalGroup(size).ranks if kind == "local" else group(size).formed()
    numbers = random.Random(7)
    offers = [[[numbers.randrange(1000) for _ in range(7)] for _ in range(size)] for _ in range(200)]

    def calls(rank: int) -> list[list[float]]:
        return [(ranks[rank].sum if tick % 3 else ranks[rank].max)(offers[tick][rank]) for tick in range(len(offers))]

    expected = [
        [(sum if tick % 3 else max)(column) for column in zip(*offer, strict=True)] for tick, offer in enumerate(offers)
    ]
    assert together([partial(calls, rank) for rank in range(size)]) == [expected] * size
    assert {rank.size for rank in ranks} == {size}
    assert len({rank.generation for rank in ranks}) == 1


def test_local_rank_that_does_not_answer() -> None:
    """The others are not kept for ever."""
    ranks = LocalGroup(3, timeout_s=0.05).ranks
    assert together([failing(begin(rank, 1)) for rank in ranks[:2]]) == [True, True]


def test_first_rank_waits_for_nobody(group: Callable[[int], Group]) -> None:
    """Ranks that have not come yet are no members: whoever is first goes on alone."""
    first = group(3).rank(2)
    assert [first.sum([tick]) for tick in range(3)] == [[0], [1], [2]]
    assert (first.size, first.tick) == (1, 3)


def test_rank_that_comes_later(group: Callable[[int], Group]) -> None:
    """It joins at the group's tick, is counted at once, and the members know that the group has changed."""
    shared = group(3)
    first = shared.rank(1)
    for _ in range(10):
        first.sum([1])
    members = [first]
    for number in (0, 2):
        before, later = first.generation, shared.rank(number)
        calls = [*(answer(member, 10) for member in members), begin(later, 1)]
        members.append(later)
        assert together(calls) == [[10 * len(members) - 9]] * len(members)
        assert {member.tick for member in members} == {first.tick}
        assert {member.generation for member in members} == {first.generation} != {before}


def test_idle_rank_is_woken(group: Callable[[int], Group]) -> None:
    """An idle group makes no ticks; one rank's call is readable to all others, and all take part in one tick."""
    ranks = group(4).formed()
    tick = ranks[0].tick
    for beginner in range(4):
        assert [rank.is_called() for rank in ranks] == [False] * 4
        assert select.select(ranks, [], [], 0)[0] == []
        calls = [answer(rank, 1) for rank in ranks]
        calls[beginner] = begin(ranks[beginner], 100)
        assert together(calls) == [[103]] * 4
        assert [rank.tick for rank in ranks] == [tick + beginner + 1] * 4


@pytest.mark.parametrize("planner", [0, 1])
def test_ring_in_the_middle_of_a_tick(planner: int, group: Callable[[int], Group]) -> None:
    """A planner is as fast as it can, so rings come while the idle rank is in the tick before; none is lost."""
    ranks = group(2).formed()

    def plan() -> None:
        for _ in range(500):
            ranks[planner].sum([1])

    def idle() -> None:
        for _ in range(500):
            answer(ranks[1 - planner], 1)()

    together([plan, idle])
    assert ranks[0].tick == ranks[1].tick


def test_late_rank_catches_up_with_one_call(group: Callable[[int], Group]) -> None:
    """It takes part in the group's tick, however many there have been without it."""
    ranks = group(2).formed(SILENCE_S)
    assert failing(begin(ranks[0], 1))()
    assert [ranks[0].sum([tick]) for tick in range(50)] == [[tick] for tick in range(50)]
    assert ranks[1].is_called()
    assert together([answer(ranks[0], 10), begin(ranks[1], 1)]) == [[11], [11]]
    assert not ranks[1].is_called()
    assert ranks[0].tick == ranks[1].tick
    assert ranks[0].generation == ranks[1].generation


@pytest.mark.parametrize("silent", [0, 1, 2])
def test_silent_rank(silent: int, group: Callable[[int], Group]) -> None:
    """Who does not answer costs the others one error each at most, and all begin a new generation together.

    When it is back it is waited for again. Rank 0 leads.
    """
    ranks = group(3).formed(SILENCE_S)
    before = ranks[0].generation
    others = [rank for number, rank in enumerate(ranks) if number != silent]
    assert max(errors_until(others, 2)) == 1
    between = others[0].generation
    assert max(errors_until(ranks, 3)) == 0
    assert len({before, between, ranks[0].generation}) == 3
    assert len({rank.generation for rank in ranks}) == 1


@pytest.mark.parametrize("leaver", [0, 1, 2])
def test_rank_that_leaves(leaver: int, group: Callable[[int], Group]) -> None:
    """It is missed once, and nobody waits for it; its place can be taken again."""
    shared = group(3)
    ranks = shared.formed()
    ranks[leaver].close()
    others = [rank for number, rank in enumerate(ranks) if number != leaver]
    assert max(errors_until(others, 2)) == 1
    assert max(errors_until([*others, shared.rank(leaver)], 3)) == 0


@pytest.mark.parametrize("leaver", [0, 1])
def test_rank_that_leaves_while_others_wait(leaver: int, group: Callable[[int], Group]) -> None:
    """They are told."""
    ranks = group(2).formed()

    def leave() -> bool:
        wait_for_call(ranks[leaver])
        ranks[leaver].close()
        return True

    assert together([leave, failing(begin(ranks[1 - leaver], 1))]) == [True, True]


def test_ranks_that_come_at_the_same_moment(group: Callable[[int], Group]) -> None:
    """They found one group and not several."""
    shared = group(4)
    ranks = [shared.rank(number) for number in range(4)]
    assert errors_until(ranks, 4) == [0] * 4
    assert len({rank.generation for rank in ranks}) == 1


@pytest.mark.parametrize("further", [0, 1])
def test_rank_that_is_further_on(further: int, group: Callable[[int], Group]) -> None:
    """A leader or a follower that waits in a tick that the other will never take part in, goes on to the other's."""
    shared = group(3)
    ranks = [shared.rank(0), shared.rank(1)]
    ranks[0].sum([10])
    together([answer(ranks[0], 10), begin(ranks[1], 1)])
    tick = ranks[0].tick

    def go_further() -> list[float]:
        wait_for_call(ranks[further])
        ballot_rows(shared.memory, 3)[2].offer(Offer(0, tick + 9, 0, ()))
        return ranks[further].sum([10])

    assert together([go_further, begin(ranks[1 - further], 1)]) == [[11], [11]]
    assert [rank.tick for rank in ranks] == [tick + 9] * 2


def test_rank_that_asks(group: Callable[[int], Group]) -> None:
    """Who offers in a tick that has ended is waited for soon, if it asks to be let in; else it may have died since."""
    shared = group(2)
    leader, row = shared.rank(0, SILENCE_S), ballot_rows(shared.memory, 2)[1]
    leader.sum([1])
    row.enter(os.getpid())
    for generation, awaited in ((leader.generation, False), (0, True)):
        row.offer(Offer(1, leader.tick, generation, ()))
        assert leader.sum([1]) == [1]
        assert failing(begin(leader, 1))() == awaited


def test_rank_that_was_left_out_asks(group: Callable[[int], Group]) -> None:
    """Whatever it remembers of the group, it is in no generation."""
    shared = group(2)
    ranks = shared.formed(SILENCE_S)
    row = ballot_rows(shared.memory, 2)[1]
    assert row.offer_of(ranks[1].tick) is not None
    assert failing(begin(ranks[0], 1))()
    assert ranks[0].sum([1]) == [1]
    assert ranks[1].generation != 0
    assert failing(begin(ranks[1], 1))()
    offer = row.offer_of(row.offered)
    assert offer is not None
    assert offer.generation == 0


def test_tick_that_has_ended_without_a_rank(group: Callable[[int], Group]) -> None:
    """Its numbers are no answer to a rank that was not counted, which takes part in the next one."""
    shared = group(2)
    leader, late = shared.rank(0), shared.rank(1)
    leader.sum([10])
    row = ballot_rows(shared.memory, 2)[0]
    verdict = row.verdict()
    assert verdict is not None
    done = threading.Event()

    def end_it_and_go_on() -> None:
        wait_for_call(leader)
        row.publish(replace(verdict, tick=leader.tick + 1, values=(99.0,)))
        while not done.is_set():
            leader.sum([10])

    def join() -> list[float]:
        numbers = late.sum([1])
        done.set()
        late.close()
        return numbers

    calls: list[Callable[[], object]] = [failing(end_it_and_go_on), join]
    assert together(calls)[1] == [11]


def test_last_word_of_a_leader(group: Callable[[int], Group]) -> None:
    """What a leader has published counts, though it was gone before it woke anybody."""
    shared = group(2)
    leader, follower = shared.formed(SILENCE_S)
    row = ballot_rows(shared.memory, 2)[0]
    verdict = row.verdict()
    assert verdict is not None

    def publish_and_leave() -> None:
        wait_for_call(leader)
        row.publish(replace(verdict, tick=verdict.tick + 1, values=(42.0,)))
        leader.close()

    assert together([publish_and_leave, begin(follower, 1)]) == [None, [42]]
