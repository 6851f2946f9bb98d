"""The life of a server, with stand-ins for its processes: how it starts, dies and stops."""

from __future__ import annotations

import os
import re
import signal
import socket
from pathlib import Path

import pytest

from .server import leftovers, wait_gone
from .stand_ins import GOOD, launcher, spoiled, start


def test_ready_serve_stop() -> None:
    """A server whose processes get ready says where it serves, and stops with 0 and nothing left when asked."""
    with launcher() as server:
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+", server.wait_ready())
        pids = list(server.children().values())
        assert len(pids) == len(GOOD)
        assert leftovers(server.pid) != []
        assert server.stop() == 0
        assert wait_gone(pids, 0) == []
    for name in GOOD:
        assert re.search(rf"^{name} +ready in \d+\.\d s$", server.errors, re.MULTILINE), server.errors
    assert "drained" in server.errors


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_other_ways_to_ask(number: int) -> None:
    """Ctrl-C and a closed terminal stop a server as SIGTERM does."""
    with launcher() as server:
        server.wait_ready()
        assert server.stop(number) == 0


@pytest.mark.parametrize("behaviour", ["never_ready", "compute"])
def test_stop_before_ready(behaviour: str) -> None:
    """A server that is still starting stops at once when asked, with status 0, whatever a process is busy with."""
    with launcher(spoiled(executor=behaviour)) as server:
        server.wait_said("loading weights 40 %")
        assert server.stop() == 0


@pytest.mark.parametrize(
    ("behaviour", "status", "cause"),
    [
        ("refuse", 3, "executor0: the weights are damaged"),
        ("fail", 1, "executor0: RuntimeError: a bug"),
        ("crash", 1, "executor0 failed (exit status 7); its last line: the very last words"),
        ("killed", 1, "executor0 was killed by SIGKILL (did the machine run out of memory?)"),
        ("leave", 1, "executor0 ended unasked (exit status 0)"),
    ],
)
def test_death_with_cause(behaviour: str, status: int, cause: str) -> None:
    """When a process dies, and is not to be replaced, the server stops; its last line and exit status say why."""
    with launcher(spoiled(executor=behaviour), max_restarts=0) as server:
        assert server.wait() == status
    assert server.errors.splitlines()[-1] == f"fourstroke: error: {cause}"


def test_last_words_are_shown() -> None:
    """What a process printed before it died is shown with the cause of its death."""
    with launcher(spoiled(scheduler="crash")) as server:
        server.wait()
    assert "    | the very last words" in server.errors.splitlines()


def test_start_timeout_names_the_late() -> None:
    """A server that does not get ready in time stops, and says which process was late and how far it was."""
    with launcher(spoiled(executor="never_ready"), start_timeout_s=3) as server:
        assert server.wait() == 1
    last = server.errors.splitlines()[-1]
    assert last == "fourstroke: error: not ready within --start-timeout 3 s: executor0 (loading weights 40 %)"


def test_frozen_process_is_killed() -> None:
    """A process that does not end when asked is killed; the exit status tells, and no other process is blamed."""
    with launcher() as server:
        server.wait_ready()
        children = server.children()
        os.kill(children["scheduler"], signal.SIGSTOP)
        assert server.stop() == 1
        assert wait_gone(list(children.values()), 0) == []
    last = server.errors.splitlines()[-1]
    assert last == "fourstroke: error: scheduler0 did not end when asked to and had to be killed"


def test_third_signal_kills() -> None:
    """The first signal lets requests end, the second processes, the third nothing."""
    with launcher(spoiled(ingest="busy", scheduler="deaf"), drain_timeout_s=3600) as server:
        server.wait_ready()
        for number in (signal.SIGINT, signal.SIGTERM):
            server.process.send_signal(number)
            server.wait_said(number.name)
        assert server.stop(signal.SIGHUP) == 1
    assert "scheduler0" in server.errors.splitlines()[-1]


def test_order_of_stopping() -> None:
    """Each process is told to end when the one before it has: the strokes in order, then the publisher."""
    roles = ["ingest", "scheduler", "executor", "output", "publisher"]
    with launcher({f"{role}0": "say_goodbye" for role in reversed(roles)}, drain_timeout_s=0) as server:
        server.wait_ready()
        assert server.stop() == 0
    assert re.findall(r"^(\w+)0 says goodbye$", server.errors, re.MULTILINE) == roles


def test_order_to_drain_arrives_late() -> None:
    """Ingest drains however busy it is when it is told to."""
    with launcher(drain_timeout_s=3600) as server:
        server.wait_ready()
        ingest = server.children()["ingest"]
        os.kill(ingest, signal.SIGSTOP)
        server.process.send_signal(signal.SIGTERM)
        server.wait_said("SIGTERM")
        assert wait_gone([ingest], 1) == [ingest]
        os.kill(ingest, signal.SIGCONT)
        assert server.wait() == 0
    assert "drained" in server.errors


def test_drain_timeout() -> None:
    """Requests that do not end within the drain time-out are cut off, and that is still a clean stop."""
    with launcher(spoiled(ingest="busy"), drain_timeout_s=0.5) as server:
        server.wait_ready()
        assert server.stop() == 0
    assert "--drain-timeout 0.5 s" in server.errors


def test_second_signal_skips_the_drain() -> None:
    """A second signal ends the wait for requests that run."""
    with launcher(spoiled(ingest="busy"), drain_timeout_s=3600) as server:
        server.wait_ready()
        server.process.send_signal(signal.SIGINT)
        server.wait_said("SIGINT")
        assert server.stop(signal.SIGINT) == 0
    assert "--drain-timeout" not in server.errors


def test_death_while_draining() -> None:
    """A process that dies for good while requests are awaited ends the wait, and the exit status tells."""
    with launcher(spoiled(ingest="busy"), drain_timeout_s=3600, max_restarts=0) as server:
        server.wait_ready()
        children = server.children()
        server.process.send_signal(signal.SIGTERM)
        server.wait_said("SIGTERM")
        os.kill(children["executor"], signal.SIGKILL)
        assert server.wait() == 1


def test_failure_while_stopping() -> None:
    """A process that fails when it is asked to stop spoils the exit status."""
    with launcher(spoiled(scheduler="fail_at_the_end")) as server:
        server.wait_ready()
        assert server.stop() == 1
    assert server.errors.splitlines()[-1] == "fourstroke: error: scheduler0: RuntimeError: a bug while stopping"


def test_owner_gone() -> None:
    """With --stop-on-eof the server stops at once when the other end of the pipe is closed, drain or not."""
    read, write = os.pipe()
    with launcher(spoiled(ingest="busy"), (read,), drain_timeout_s=3600) as server:
        os.close(read)
        server.wait_ready()
        os.close(write)
        assert server.wait() == 0


def test_port_taken() -> None:
    """A port that is taken is refused in one line, before any process starts."""
    with socket.create_server(("127.0.0.1", 0)) as taken, launcher(port=taken.getsockname()[1]) as server:
        assert server.wait() == 3
    (line,) = server.errors.splitlines()
    assert re.fullmatch(r"fourstroke: error: port \d+ on 127\.0\.0\.1 is taken: .*", line)


def test_port_is_free_again() -> None:
    """The next server may listen where the last one did, at once."""
    with launcher() as server:
        port = int(server.wait_ready().rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)):
            server.stop()
    with launcher(port=port) as server:
        assert server.wait_ready() == f"http://127.0.0.1:{port}"


def test_unix_socket(tmp_path: Path) -> None:
    """A Unix socket takes the place of a dead server's, not of a living one's, and is removed at the end."""
    path = tmp_path / "http"
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(str(path))
    stale.close()
    with launcher(unix_socket=str(path)) as server:
        assert server.wait_ready() == f"unix:{path}"
        assert path.stat().st_mode & 0o777 == 0o600
        with launcher(unix_socket=str(path)) as second:
            assert second.wait() == 3
        assert path.exists()
        server.stop()
    assert not path.exists()


def test_cycles_leave_nothing() -> None:
    """Twenty starts with ends of every kind, also in the middle of a start: nothing of any of them is left."""
    pids = []
    for kind in [signal.SIGTERM, signal.SIGINT, signal.SIGKILL, None] * 5:
        with start({"ingest0": "obey"}) as server:
            if kind is None:
                server.process.terminate()  # at some moment of the start
            else:
                server.wait_ready()
                server.process.send_signal(kind)
            server.wait()
        pids.append(server.pid)
    with launcher() as last:
        last.wait_ready()
    assert [left for pid in pids for left in leftovers(pid)] == []
