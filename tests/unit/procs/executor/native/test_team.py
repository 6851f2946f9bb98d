"""The team of threads: all members run each piece of work once, and none passes a meeting before all have come."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from fourstroke.procs.executor.native.library import Library

WORK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int)


@contextmanager
def team_of(kernels: Library, members: int) -> Iterator[int]:
    team = kernels.team_start(members)
    assert team
    yield team
    kernels.team_stop(team)


def run(kernels: Library, team: int, work: Callable[[int], None]) -> None:
    kernels["team_run"](ctypes.c_void_p(team), WORK(lambda _argument, member: work(member)), None)


def meet(kernels: Library, team: int) -> None:
    """Without the interpreter's lock, which the others need to come."""
    kernels["team_meet"](ctypes.c_void_p(team))


@pytest.mark.parametrize("members", [1, 2, 3, 4])
def test_meetings(kernels: Library, members: int) -> None:
    """After a meeting all have done what was before it, and none what is behind the next; again and again."""
    with team_of(kernels, members) as team:
        for _ in range(20):
            done, seen = [0] * members, []

            def work(member: int) -> None:
                for turn in range(10):
                    done[member] += 1  # noqa: B023
                    meet(kernels, team)
                    seen.append(done == [turn + 1] * members)  # noqa: B023
                    meet(kernels, team)

            run(kernels, team, work)
            assert done == [10] * members
            assert seen == [True] * (10 * members)


@pytest.mark.parametrize("members", [1, 2, 3, 4])
def test_runs_without_meetings(kernels: Library, members: int) -> None:
    """Each member is called once a run, and a run is over when all are done."""
    called: list[int] = []
    with team_of(kernels, members) as team:
        for _ in range(200):
            called.clear()
            run(kernels, team, called.append)
            assert sorted(called) == list(range(members))


def test_teams_come_and_go(kernels: Library) -> None:
    """A team that never worked stops, too, and teams do not disturb each other."""
    for members in (1, 2, 3, 4) * 5:
        called: list[int] = []
        with team_of(kernels, members), team_of(kernels, members) as team:
            run(kernels, team, called.append)
        assert sorted(called) == list(range(members))
