"""What a load costs: CPU time by the names of processes."""

from __future__ import annotations

import io
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from rich.console import Console

from fourstroke.launch.bench import costs
from fourstroke.launch.bench.clients import Clients
from fourstroke.launch.bench.costs import cpu_seconds, family, measure_costs
from fourstroke.launch.bench.load import Load, Target
from fourstroke.launch.bench.measure import progress
from fourstroke.launch.bench.prompts import Prompts

from .fake_server import MODEL, fake_server
from .made import made_costs

TITLED = """
import setproctitle, sys, time
setproctitle.setproctitle(sys.argv[1])
while time.process_time() < 0.2:
    pass
print(time.process_time(), flush=True)
sys.stdin.read()
"""
"""A program that gives itself a name, works for 0.2 s, says how long it has, and waits."""


@contextmanager
def working(title: str) -> Iterator[float]:
    """A process of that name that has worked: for how many seconds."""
    command = [sys.executable, "-c", TITLED, title]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        yield float(process.stdout.readline())
        process.stdin.close()


def test_processes_of_one_name_count_together() -> None:
    """What two have worked is the sum; what has no title of ours is called as the system calls it."""
    with working("fourstroke: stroke") as one, working("fourstroke: stroke") as two, working("another"):
        found = cpu_seconds()
        names = [name for name, _ in family()]
    assert found["stroke"] == pytest.approx(one + two, abs=0.1)
    assert names.count("stroke") == 2 and names[0] == "bench"
    assert sum(name not in ("bench", "stroke") for name in names) == 1


def test_this_process_works_too() -> None:
    """Its own time is under the name bench."""
    before, begun = cpu_seconds()["bench"], time.process_time()
    while time.process_time() < begun + 0.1:
        pass
    assert cpu_seconds()["bench"] - before == pytest.approx(time.process_time() - begun, abs=0.03)


def test_only_the_load_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time from before it, the warm-up's included, is taken off; a process that was not there has all of its own."""
    snapshots = iter([{"ingest": 5.0, "client": 1.0}, {"ingest": 7.5, "client": 1.25, "late": 0.5}])
    pytest.importorskip("aiohttp")
    load = Load(requests=4, output_tokens=3, prompts=Prompts(words=2), concurrency=2)
    with fake_server() as server, Clients(1) as asking:

        def snapshot() -> dict[str, float]:
            asked.append(len(server.bodies))
            return next(snapshots)

        asked: list[int] = []
        monkeypatch.setattr(costs, "cpu_seconds", snapshot)
        with progress(Console(file=io.StringIO())) as bar:
            found = measure_costs(asking, Target("t", server.url, MODEL), load, bar)
    assert asked == [1, 1 + 4]
    assert found.cpu_s == {"ingest": 2.5, "client": 0.25, "late": 0.5}
    assert (found.chunks, found.summary.output_tokens) == (12, 12)


def test_cores() -> None:
    """CPU time over the wall clock's, of all or of some roles; one that there is not has none."""
    cpu_s = {"executor": 4.0, "ingest0": 1.5, "ingest1": 0.5, "client": 1.0}
    found = made_costs(streams=8, rate=100, wall_s=4, cpu_s=cpu_s)
    assert found.cores() == 1.75
    assert found.cores(("ingest", "client", "nobody")) == 0.75
