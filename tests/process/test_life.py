"""The life of a real server: kills, deaths, a stop while the model loads, and what idling costs."""

from __future__ import annotations

import signal

import psutil
import pytest

from .server import get, leftovers, metrics, start_server, wait_gone

FAKE = "--executor=fake"


def test_kill_of_the_launcher_takes_every_process_along():
    """Within seconds no process is left, and the next start removes the files."""
    server = start_server(FAKE)
    server.wait_ready()
    pids = list(server.children().values())
    assert len(pids) == 5
    server.process.kill()
    server.wait()
    server.close()
    assert wait_gone(pids, 5) == []
    with start_server(FAKE) as successor:
        successor.wait_ready()
        assert leftovers(server.pid) == []
        assert leftovers(successor.pid) != []
    assert leftovers(successor.pid) == []


@pytest.mark.parametrize("role", ["ingest", "scheduler", "executor", "output"])
def test_a_process_that_dies_may_end_the_server_with_its_cause(role: str):
    """With --max-restarts 0 the launcher says who died and of what, stops the others and exits with 1.

    Nothing is left behind.
    """
    server = start_server(FAKE, "--max-restarts=0")
    url = server.wait_ready()
    assert get(f"{url}/health")[0] == 200
    children = server.children()
    psutil.Process(children[role]).send_signal(signal.SIGKILL)
    assert server.wait() == 1
    assert f"{role}0 was killed by SIGKILL" in server.errors
    assert wait_gone(list(children.values()), 0) == []
    assert leftovers(server.pid) == []
    server.close()


def test_a_publisher_that_dies_is_started_again():
    """Requests need none of it: when it dies too often it is given up, and the server goes on."""
    with start_server(FAKE, "--max-restarts=2") as server:
        url = server.wait_ready()
        for times in range(1, 4):
            server.wait_said("publisher0  ready", times)
            assert get(f"{url}/health")[0] == 200
            assert metrics(url)["restarts_total", "publisher0"] == times - 1
            psutil.Process(server.children()["publisher"]).send_signal(signal.SIGKILL)
        server.wait_said("the server goes on without publisher0")
        assert get(f"{url}/health")[0] == 200
    assert leftovers(server.pid) == []


def test_stop_while_the_model_loads():
    """A server that is asked to stop while it loads the real model does so at once, with status 0."""
    server = start_server()
    server.wait_said("loading weights")
    assert server.stop() == 0
    assert leftovers(server.pid) == []
    server.close()


def test_an_idle_server_uses_no_cpu():
    """All processes together take less than 2 % of one core while nobody asks for anything."""
    with start_server(FAKE) as server:
        server.wait_ready()
        processes = [psutil.Process(pid) for pid in (server.pid, *server.children().values())]

        def cpu_s() -> float:
            return sum(sum(process.cpu_times()[:2]) for process in processes)

        before = cpu_s()
        assert wait_gone([server.pid], 5) == [server.pid], "the server ended"
        assert cpu_s() - before < 0.1
