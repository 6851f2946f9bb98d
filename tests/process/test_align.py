"""Ranks in real processes: they agree in every tick, and one that dies or stops costs the others one tick."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from fourstroke.ipc.ballot import ballot_bytes
from fourstroke.ipc.segment import Segment, owner_tag
from fourstroke.ipc.shared_collective import SEGMENT

PROGRAM = Path(__file__).with_name("aligned_rank.py")

HANG_S = 60.0
"""A bound for what must not hang."""

LONG_S = 2 * HANG_S
"""A time-out of the group that no test can wait for."""

SHORT_S = 1.0
"""A time-out that the tests wait for, and long enough for ranks on a busy machine."""


class Rank:
    """A process of tests/process/aligned_rank.py."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAM), *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )
        self._unread = b""

    def tell(self, word: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word}\n".encode())

    def hear(self, *event: Any) -> list[Any]:
        """Read what it tells until it tells this; return all of that line."""
        while True:
            heard: list[Any] = json.loads(self._line())
            if heard[: len(event)] == list(event):
                return heard

    def _line(self) -> bytes:
        assert self.process.stdout is not None
        while b"\n" not in self._unread:
            assert select.select([self.process.stdout], [], [], HANG_S)[0], "a rank hangs"
            more = os.read(self.process.stdout.fileno(), 1 << 16)
            assert more, "a rank has died"
            self._unread += more
        line, _, self._unread = self._unread.partition(b"\n")
        return line

    def signal(self, number: int) -> None:
        os.kill(self.process.pid, number)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()

    def finish(self) -> tuple[int, list[tuple[int, int, str, bool]]]:
        """Let an idle rank leave; return its errors, and tick, size, rule and answer of all its ticks."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        _, errors, log = self.hear("log")
        assert self.process.wait(HANG_S) == 0
        return errors, [tuple(entry) for entry in log]


class Group:
    """Starts ranks, and ends them whatever happens."""

    def __init__(self, folder: Path, size: int, timeout_s: float, algorithm: str, settled_ticks: int) -> None:
        self.size = size
        self._owner = f"{owner_tag()}.{uuid.uuid4().hex[:8]}"
        self._segment = Segment.create(self._owner, SEGMENT, ballot_bytes(size))
        self._folder = folder
        self._rest = [str(size), str(timeout_s), algorithm, str(settled_ticks)]
        self._started: list[Rank] = []
        self.ranks = [self.start(rank) for rank in range(size)]
        for one in self.ranks:
            one.hear("here")

    def start(self, rank: int) -> Rank:
        self._started.append(Rank([self._owner, str(self._folder), str(rank), *self._rest]))
        return self._started[-1]

    def settle(self, ranks: Sequence[Rank], size: int) -> None:
        """Wait until these ranks have agreed for many ticks in a row, that many of them counted."""
        for rank in ranks:
            rank.hear("settled", size)

    def rest(self, ranks: Sequence[Rank]) -> None:
        for rank in ranks:
            rank.tell("idle")
        for rank in ranks:
            rank.hear("idle")

    def close(self) -> None:
        for rank in self._started:
            rank.end()
        self._segment.unlink()


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Callable[..., Group]]:
    """Makes groups of busy ranks, which rank 0 leads, since it came first."""
    groups: list[Group] = []

    def make(size: int, timeout_s: float, algorithm: str = "coalesce", settled_ticks: int = 200) -> Group:
        groups.append(Group(tmp_path, size, timeout_s, algorithm, settled_ticks))
        groups[-1].ranks[0].tell("once")
        groups[-1].ranks[0].hear("once")
        for rank in groups[-1].ranks:
            rank.tell("busy")
        return groups[-1]

    yield make
    for one in groups:
        one.close()


def agreed(logs: Sequence[Sequence[tuple[int, int, str, bool]]]) -> dict[int, str]:
    """The rule of each tick in which at least two ranks were counted; fails if any two ranks differ."""
    rules: dict[tuple[int, int], str] = {}
    for log in logs:
        for tick, size, rule, allowed in log:
            assert allowed or rule in ("MIXED", "FILLING")
            if size > 1 and rule != "ERROR":
                assert rules.setdefault((tick, size), rule) == rule, f"tick {tick}"
    return {tick: rule for (tick, _), rule in rules.items()}


@pytest.mark.parametrize("algorithm", ["coalesce", "delay"])
@pytest.mark.parametrize("size", [2, 3])
def test_all_ranks_agree(group: Callable[..., Group], size: int, algorithm: str) -> None:
    """Over a thousand ticks every rank has the same rule in the same tick, and nobody is missed."""
    one = group(size, LONG_S, algorithm, settled_ticks=1000)
    one.settle(one.ranks, size)
    one.rest(one.ranks)
    ends = [rank.finish() for rank in one.ranks]
    assert [errors for errors, _ in ends] == [0] * size
    rules = agreed([log for _, log in ends])
    assert len(rules) >= 1000
    assert len(set(rules.values())) >= 4


def test_idle_ranks_take_part(group: Callable[..., Group]) -> None:
    """Ranks that sleep are woken by the one that plans, and sleep on: it is the only tick. (DL-6)"""
    one = group(3, LONG_S)
    one.settle(one.ranks, 3)
    one.rest(one.ranks)
    for planner in one.ranks:
        planner.tell("once")
        assert planner.hear("once") == ["once", 3]
    logs = [log for _, log in map(Rank.finish, one.ranks)]
    last = [[entry[:3] for entry in log[-3:]] for log in logs]
    assert last[0] == last[1] == last[2]
    assert [tick for tick, _, _ in last[0]] == [logs[0][-4][0] + after for after in (1, 2, 3)]


@pytest.mark.parametrize("victim", [0, 2])
def test_rank_that_is_killed(group: Callable[..., Group], victim: int) -> None:
    """The others miss it in one tick, which allows prefills, and need no time-out; its place is taken again. (DL-8)"""
    one = group(3, LONG_S)
    one.settle(one.ranks, 3)
    others = [rank for number, rank in enumerate(one.ranks) if number != victim]
    one.ranks[victim].signal(signal.SIGKILL)
    one.settle(others, 2)
    again = one.start(victim)
    again.hear("here")
    again.tell("busy")
    one.settle([*others, again], 3)
    one.rest([*others, again])
    ends = [rank.finish() for rank in [*others, again]]
    check_one_error([errors for errors, _ in ends[:2]])
    assert ends[2][0] == 0
    agreed([log for _, log in ends])


@pytest.mark.parametrize("victim", [0, 2])
def test_rank_that_is_stopped(group: Callable[..., Group], victim: int) -> None:
    """The others wait for it once and go on without it; it comes back and is waited for again. (DL-8)"""
    one = group(3, SHORT_S)
    one.settle(one.ranks, 3)
    others = [rank for number, rank in enumerate(one.ranks) if number != victim]
    one.ranks[victim].signal(signal.SIGSTOP)
    one.settle(others, 2)
    one.ranks[victim].signal(signal.SIGCONT)
    one.settle(one.ranks, 3)
    one.rest(one.ranks)
    ends = [rank.finish() for rank in one.ranks]
    check_one_error([errors for number, (errors, _) in enumerate(ends) if number != victim])
    assert ends[victim][0] <= 1
    agreed([log for _, log in ends])


def check_one_error(errors: Sequence[int]) -> None:
    """One tick has failed. Whoever was between two ticks then may have met only the new group."""
    assert max(errors) == 1
