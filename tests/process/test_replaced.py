"""Processes that die or hang, and those that take their places: real processes and signals, with stand-ins."""

from __future__ import annotations

import os
import re
import signal

import pytest

from .server import Server, wait_gone
from .stand_ins import GOOD, launcher, spoiled

HINT = "(did the machine run out of memory?)"
ALL = {**GOOD, "output0": "obey", "publisher0": "obey"}


def replace(server: Server, role: str, times: int = 1) -> None:
    """Kill the process of a role and wait for the next to be ready, so many times."""
    for _ in range(times):
        lives = server.errors.count(f"{role}0 was killed by SIGKILL")
        os.kill(server.children()[role], signal.SIGKILL)
        server.wait_said(f"{role}0 was killed by SIGKILL", lives + 1)
        wait_ready(server, f"{role}0", lives + 2)


def wait_ready(server: Server, name: str, times: int) -> None:
    """Wait until so many processes of a name have got ready, one after the other."""
    server.wait_said(f"{name:<12}ready in", times)


def test_every_role_is_replaced() -> None:
    """Whoever dies is replaced, and what it had started dies with it; the server stays, and ends well."""
    with launcher(ALL | {"executor0": "give_birth"}) as server:
        server.wait_ready()
        server.wait_said("its child is")
        (orphan,) = re.findall(r"its child is (\d+)", server.errors)
        before = server.children()
        for role in before:
            replace(server, role)
        after = server.children()
        assert after.keys() == before.keys()
        assert not set(after.values()) & set(before.values())
        assert wait_gone([int(orphan)], 10) == []
        assert server.stop() == 0
    for name in ALL:
        assert f"{name} was killed by SIGKILL {HINT}; it is started again\n" in server.errors


def test_too_many_deaths_in_a_row() -> None:
    """Deaths wait longer and longer for the next process; when all are used up the server ends with the cause."""
    with launcher(max_restarts=2) as server:
        server.wait_ready()
        replace(server, "scheduler", 2)
        os.kill(server.children()["scheduler"], signal.SIGKILL)
        assert server.wait() == 1
    assert re.findall(r"it is started again(.*)", server.errors) == ["", " in 0.5 s"]
    cause = f"scheduler0 was killed by SIGKILL {HINT}; it died 3 times in a row"
    assert server.errors.splitlines()[-1] == f"fourstroke: error: {cause}"


def test_a_process_that_refuses_has_died() -> None:
    """A refusal of one that takes another's place counts as its death; it is told in the end, as a failure."""
    with launcher(spoiled(executor="refuse_next"), max_restarts=2) as server:
        server.wait_ready()
        os.kill(server.children()["executor"], signal.SIGKILL)
        assert server.wait() == 1
    cause = "executor0: the weights have gone; it died 3 times in a row"
    assert server.errors.splitlines()[-1] == f"fourstroke: error: {cause}"


@pytest.mark.parametrize(("behaviour", "deaths"), [("obey", 1), ("refuse_next", 2)])
def test_a_publisher_is_given_up(behaviour: str, deaths: int) -> None:
    """A publisher that cannot be replaced any more, whatever it died of, is given up, and the rest goes on."""
    with launcher(ALL | {"publisher0": behaviour}, max_restarts=deaths - 1) as server:
        server.wait_ready()
        os.kill(server.children()["publisher"], signal.SIGKILL)
        server.wait_said("the server goes on without publisher0")
        assert server.stop() == 0
    assert "publisher" not in server.errors.splitlines()[-1]


def test_a_publisher_that_refuses_at_the_start_ends_the_server() -> None:
    """What is wrong with the configuration is said at the start."""
    with launcher(ALL | {"publisher0": "refuse"}) as server:
        assert server.wait() == 3
    assert server.errors.splitlines()[-1] == "fourstroke: error: publisher0: the weights are damaged"


def test_stopped_processes_are_replaced() -> None:
    """A process that was stopped by a signal makes no progress: it is killed and replaced, and the cause is said."""
    with launcher(hang_timeout_s=1) as server:
        server.wait_ready()
        for pid in server.children().values():
            os.kill(pid, signal.SIGSTOP)
        for name in GOOD:
            wait_ready(server, name, 2)
        assert server.stop() == 0
    what = (
        "was in one turn of its main loop for longer than --hang-timeout 1 s (a signal had stopped it) and was killed"
    )
    for name in GOOD:
        assert f"{name} {what}; it is started again\n" in server.errors


def test_an_executor_that_hangs_is_replaced() -> None:
    """A hang is found outside a step and in it, and so is a step without end; but a long step is none.

    What the board says is in the log before a process is killed.
    """
    with launcher(spoiled(executor="hang"), hang_timeout_s=1, step_timeout_s=5) as server:
        server.wait_ready()
        wait_ready(server, "executor0", 5)  # the first says it twice
        assert server.stop() == 0
    lines = server.errors.splitlines()
    assert [line for line in lines if "executor0 was" in line] == [
        f"executor0 was in {what} and was killed; it is started again{when}"
        for what, when in (
            ("one turn of its main loop for longer than --hang-timeout 1 s", ""),
            ("a step without using the CPU for longer than --hang-timeout 1 s", " in 0.5 s"),
            ("one step for longer than --step-timeout 5 s", " in 1 s"),
        )
    ]
    board = [line for line in lines if line.startswith("    | ")]
    assert [line.split()[1] for line in board] == [f"{name}:" for name in [*GOOD, "supervisor"]] * 3
    assert ["in a step for" in line for line in board[:: len(GOOD) + 1]] == [False, True, True]


def test_a_replacement_that_is_late() -> None:
    """A process that takes another's place must get ready in time, too."""
    with launcher(spoiled(executor="late_next"), start_timeout_s=4) as server:
        server.wait_ready()
        os.kill(server.children()["executor"], signal.SIGKILL)
        server.wait_said(
            "executor0 was not ready within --start-timeout 4 s and was killed; it is started again in 0.5 s"
        )
        wait_ready(server, "executor0", 2)


def test_a_launcher_that_was_away_blames_nobody() -> None:
    """When a whole server was stopped for longer than the hang time-out, all get the time to come back."""
    with launcher(hang_timeout_s=2) as server:
        server.wait_ready()
        pids = [server.pid, *server.children().values()]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        assert wait_gone(pids[:1], 4) == pids[:1]
        os.kill(server.pid, signal.SIGCONT)
        assert wait_gone(pids[:1], 1.5) == pids[:1]  # it looks at those that still stand
        for pid in pids[1:]:
            os.kill(pid, signal.SIGCONT)
        assert server.stop() == 0
    assert "started again" not in server.errors


def test_deaths_during_the_drain() -> None:
    """Requests that run still end: whoever dies meanwhile is replaced, and a new ingest is told to drain, too."""
    with launcher(drain_timeout_s=3600) as server:
        server.wait_ready()
        children = server.children()
        os.kill(children["ingest"], signal.SIGSTOP)  # it has requests, and does not answer yet
        server.process.send_signal(signal.SIGTERM)
        server.wait_said("SIGTERM")
        os.kill(children["executor"], signal.SIGKILL)
        wait_ready(server, "executor0", 2)
        os.kill(children["ingest"], signal.SIGKILL)
        assert server.wait() == 0
    assert "drained" in server.errors
    assert "--drain-timeout" not in server.errors


def test_a_hang_during_the_drain() -> None:
    """An ingest that stands still in the drain is replaced, and its successor has nothing to finish."""
    with launcher(drain_timeout_s=3600, hang_timeout_s=1) as server:
        server.wait_ready()
        os.kill(server.children()["ingest"], signal.SIGSTOP)
        assert server.stop() == 0
    assert "drained" in server.errors


def test_signals_while_one_is_to_be_started() -> None:
    """While the next process is waited for, two signals stop a server at once."""
    with launcher(ALL | {"executor0": "refuse_next"}) as server:
        server.wait_ready()
        os.kill(server.children()["executor"], signal.SIGKILL)
        server.wait_said("it is started again in 2 s")
        server.process.send_signal(signal.SIGINT)
        server.wait_said("SIGINT")
        assert server.stop(signal.SIGTERM) == 0


def test_three_signals_at_once() -> None:
    """Three signals within an instant kill, even where a process would never end; the exit status tells."""
    with launcher(spoiled(ingest="busy", scheduler="deaf"), drain_timeout_s=3600) as server:
        server.wait_ready()
        os.kill(server.pid, signal.SIGSTOP)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(server.pid, number)
        os.kill(server.pid, signal.SIGCONT)
        assert server.wait() == 1
    assert "did not end when asked to and had to be killed" in server.errors.splitlines()[-1]
