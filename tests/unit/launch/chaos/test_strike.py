"""Blows on real processes; the test plays the supervisor that replaces them."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator

import pytest

from fourstroke.common.types import State
from fourstroke.ipc.board import Board
from fourstroke.launch.chaos.blows import KILL, STOP, Blow
from fourstroke.launch.chaos.books import Books
from fourstroke.launch.chaos.strike import strike_all

from .made import NAMES, made_board

SLEEPER = ("sleep", "60")


class Replacing:
    """Two victims, and who puts another process into the place of one that is dead or stopped, if told to."""

    def __init__(self, board: Board) -> None:
        self.board = board
        self.replaces = True
        self.seen: list[tuple[str, int]] = []
        self._gone: set[str] = set()
        self.victims = {name: subprocess.Popen(SLEEPER) for name in ("scheduler0", "executor0")}
        for name in self.victims:
            self._write(name, 0)

    def _write(self, name: str, life: int) -> None:
        row = self.board.row(name)
        row.begin()
        row.live(life)
        row.enter(State.READY)
        row["pid"] = self.victims[name].pid

    def look(self, _now_s: float) -> None:
        for name, process in self.victims.items():
            if name in self._gone:
                continue
            found, status = os.waitpid(process.pid, os.WNOHANG | os.WUNTRACED)
            if found:
                stopped = os.WIFSTOPPED(status)
                self.seen.append((name, os.WSTOPSIG(status) if stopped else os.WTERMSIG(status)))
                self.kill(process)
                if self.replaces:
                    self.victims[name] = subprocess.Popen(SLEEPER)
                    self._write(name, self.board.row(name).life + 1)
                else:
                    self._gone.add(name)

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        process.kill()
        try:
            process.wait(5)
        except ChildProcessError:
            return


@pytest.fixture
def replacing() -> Iterator[Replacing]:
    with made_board() as board:
        made = Replacing(board)
        yield made
        for process in made.victims.values():
            made.kill(process)


BLOWS = [Blow(0.0, "scheduler0", KILL), Blow(0.02, "executor0", STOP), Blow(0.03, "scheduler0", KILL)]


def test_blows_are_struck(replacing: Replacing) -> None:
    """Each victim gets its signal, in order, the second time the process that is there then; all come back."""
    found = strike_all(Books(os.getpid(), NAMES), BLOWS, 0.1, 20, replacing.look)
    assert [name for name, _ in replacing.seen if name == "scheduler0"] == ["scheduler0"] * 2
    assert dict(replacing.seen) == {"scheduler0": signal.SIGKILL, "executor0": signal.SIGSTOP}
    assert sorted(one.blow.at_s for one in found) == [0.0, 0.02, 0.03]
    assert all(one.took_s is not None and one.took_s > 0 for one in found)


def test_who_does_not_come_back(replacing: Replacing) -> None:
    """Is a recovery without an end; a second blow for it is never struck, and the others are."""
    replacing.replaces = False
    found = strike_all(Books(os.getpid(), NAMES), BLOWS, 0.1, 1, replacing.look)
    assert sorted(one.blow.name for one in found) == ["executor0", "scheduler0"]
    assert all(one.took_s is None for one in found)


def test_who_is_not_ready_is_not_hit(replacing: Replacing) -> None:
    replacing.board.row("scheduler0").enter(State.STARTING)
    assert strike_all(Books(os.getpid(), NAMES), BLOWS[:1], 0.05, 0.05, replacing.look) == []
    assert replacing.seen == []


def test_what_a_look_raises_ends_it(replacing: Replacing) -> None:
    def look(_now_s: float) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        strike_all(Books(os.getpid(), NAMES), BLOWS, 60, 60, look)
