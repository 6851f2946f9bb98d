"""Ranks wake one another and know who lives."""

from __future__ import annotations

import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fourstroke.ipc.peers import Peers

HANG_S = 30.0


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Peers, Peers]]:
    peers = Peers(tmp_path, 0, 2), Peers(tmp_path, 1, 2)
    yield peers
    for one in peers:
        one.close()


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.communicate()


def later() -> float:
    return time.monotonic() + HANG_S


def readable(peers: Peers) -> bool:
    return bool(select.select([peers], [], [], 0)[0])


def test_wake(pair: tuple[Peers, Peers]) -> None:
    """A ring is readable, ends a wait, and is gone then, however often it came."""
    one, other = pair
    assert not readable(other)
    for _ in range(1000):
        one.wake(1)
    assert readable(other)
    assert not readable(one)
    assert other.wait(later())
    assert not readable(other)


def test_nobody_there(pair: tuple[Peers, Peers], tmp_path: Path) -> None:
    """To ring at one who is gone, or has not come, harms nobody; who comes in its place is heard and hears."""
    one, other = pair
    other.close()
    one.wake(1)
    again = Peers(tmp_path, 1, 2)
    one.wake(1)
    assert again.wait(later())
    again.wake(0)
    assert one.wait(later())
    again.close()


def test_socket_that_a_dead_process_left(pair: tuple[Peers, Peers], tmp_path: Path) -> None:
    """Whoever comes takes the place."""
    again = Peers(tmp_path, 0, 2)
    pair[1].wake(0)
    assert again.wait(later())
    again.close()


def test_time_is_up(pair: tuple[Peers, Peers]) -> None:
    """A wait whose deadline has passed does not begin."""
    pair[1].wake(0)
    assert not pair[0].wait(time.monotonic())
    assert readable(pair[0])


def test_death_ends_a_wait(pair: tuple[Peers, Peers], child: subprocess.Popen[bytes]) -> None:
    """A process is alive until it ends, which ends the wait; it is dead before and after its parent notices."""
    assert pair[0].alive(child.pid)
    child.kill()
    assert pair[0].wait(later())
    assert not pair[0].alive(child.pid)
    child.wait()
    assert not pair[0].alive(child.pid)
    assert not pair[1].alive(child.pid)
    assert not readable(pair[0])
