"""What a load costs in CPU time: of this process and all that it has started, by the names that `ps` shows.

So whoever measures has the server and the clients as its children. Called by http_path.py and served.py.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

import psutil
from rich.progress import Progress

from .clients import Clients
from .load import Load, Target
from .measure import records_of, warm_up
from .summary import Limits, Summary, summarise_load

_TITLE = "fourstroke: "
ASKING = ("client", "bench")
"""The roles that measure: those that ask, and the one that gives them their orders."""


@dataclass(frozen=True, slots=True)
class Costs:
    """A load that was measured; `cpu_s` are CPU seconds by the name of a process, several clients together."""

    summary: Summary
    chunks: int
    cpu_s: Mapping[str, float]

    def cores(self, roles: Collection[str] | None = None) -> float:
        """How many cores the processes of these roles (by default all) kept busy on average while the load ran."""
        spent_s = sum(seconds for name, seconds in self.cpu_s.items() if roles is None or _role(name) in roles)
        return spent_s / self.summary.wall_s


def _role(name: str) -> str:
    """Where a role has several processes their names end in numbers."""
    return name.rstrip("0123456789")


def measure_costs(clients: Clients, target: Target, load: Load, bar: Progress) -> Costs:
    """Put a load on a server that this process has started, after a request to warm up. Raises ServerError."""
    warm_up(clients, target, load)
    before = cpu_seconds()
    records = records_of(clients, target, load, bar)
    spent = {name: seconds - before.get(name, 0.0) for name, seconds in cpu_seconds().items()}
    chunks = sum(len(record.chunks_s) for record in records)
    return Costs(summarise_load(load, records, Limits()), chunks, spent)


def cpu_seconds() -> dict[str, float]:
    """The CPU time so far, user and system, of each name of a process."""
    found: dict[str, float] = {}
    for name, process in family():
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            found[name] = found.get(name, 0.0) + times.user + times.system
    return found


def family() -> Iterator[tuple[str, psutil.Process]]:
    """This process, called bench, and all that it has started, with their names in `ps`."""
    own = psutil.Process(os.getpid())
    yield "bench", own
    for process in own.children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            title = " ".join(process.cmdline()).strip()
            yield title.removeprefix(_TITLE) if title.startswith(_TITLE) else process.name(), process
