"""`fourstroke bench serve`: loads on one server, which runs already or is started for it; a table, JSON, a plot."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from ...common.errors import ConfigError
from ..private_server import PrivateServer
from .clients import Clients, require
from .figures import make_console
from .load import Load, Target
from .measure import measure, progress, target_at
from .plot import check_plot, plot_runs
from .report import Run, as_json, as_table, read_runs
from .summary import Limits


@dataclass(frozen=True, slots=True)
class Files:
    """Where results go, and earlier ones that the plot shows as well."""

    json: Path | None = None
    plot: Path | None = None
    others: Sequence[Path] = ()


@dataclass(frozen=True, slots=True)
class Server:
    """Which server: the one at `url`, or one of its own with these flags of `fourstroke serve`."""

    url: str | None
    flags: Sequence[str]
    model: str | None
    name: str | None
    api_key: str | None


def bench_serve(server: Server, loads: Sequence[Load], limits: Limits, clients: int, files: Files) -> None:
    """Measure, print a table, write the files.

    Raises ConfigError or ServerError before anything is measured if the server or the files are not as they must be.
    """
    if server.url is not None and server.flags:
        raise ConfigError("flags after -- are for a server that is started; with --url there is none")
    check_plot(files.plot)
    require("aiohttp")
    others = [run for path in files.others for run in read_runs(path)]
    console = make_console()
    with _running(server) as target, Clients(clients) as asking, progress(console) as bar:
        summaries = tuple(measure(asking, target, loads, limits, bar))
    run = Run(target.name, target.model, asked(loads[0]), summaries)
    console.print(as_table(run, limits.any))
    for load in summaries:
        for cause, count in load.errors.items():
            console.print(f"{load.name}: {count} failed: {cause}", markup=False)
    if files.json is not None:
        files.json.write_text(as_json([run]))
    if files.plot is not None:
        plot_runs([*others, run], files.plot)


@contextmanager
def _running(server: Server) -> Iterator[Target]:
    if server.url is not None:
        yield target_at(server.url, server.model, server.name, server.api_key)
        return
    with closing(PrivateServer(list(server.flags))) as own:
        yield target_at(own.url, server.model, server.name, None)


def asked(load: Load) -> str:
    """What is asked for, in words."""
    return f"{load.prompts.described} in, {load.output_tokens} tokens out"
