"""`fourstroke bench compare`: the same loads on several engines of this machine, in turn, several times.

Absolute figures of a shared machine are of one hour only. So the engines take turns, A B C A B C, each started for its
turn and stopped after it, and what counts is the ratio within a repetition.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence

from rich.console import Console
from rich.progress import Progress

from ...common.errors import ConfigError
from .clients import Clients, require
from .engines import Engine, running
from .figures import make_console
from .load import Load
from .measure import measure, progress, target_at
from .plot import check_plot, plot_runs
from .ratios import as_table, ratios
from .report import Run, as_json
from .report import as_table as run_table
from .serve import Files, asked
from .summary import Limits


def bench_compare(
    engines: Sequence[Engine], loads: Sequence[Load], repetitions: int, clients: int, files: Files
) -> None:
    """Measure, print a table of each run and of the ratios, write the files. The first engine is held against all.

    In a repetition all engines get the same prompts, in the next all get others. What is done is written after each
    run: a comparison takes long. Raises ConfigError or ServerError.
    """
    if len({engine.url for engine in engines}) < len(engines):
        raise ConfigError("two engines have the same url")
    check_plot(files.plot)
    require("aiohttp")
    console = make_console()
    runs: list[Run] = []
    with Clients(clients) as asking, progress(console) as bar:
        for repetition in range(repetitions):
            own = [dataclasses.replace(load, seed=f"{load.seed}/{repetition}") for load in loads]
            for engine in engines:
                runs.append(_turn(engine, own, asking, bar))
                console.print(run_table(runs[-1], False))
                if files.json is not None:
                    files.json.write_text(as_json(runs))
    _show(console, runs, files)


def _turn(engine: Engine, loads: Sequence[Load], clients: Clients, bar: Progress) -> Run:
    """One engine's turn."""
    starting = bar.add_task(f"{engine.name} starts", total=None)
    with running(engine) as ready_s:
        bar.remove_task(starting)
        target = target_at(engine.url, engine.model, engine.name, None)
        summaries = tuple(measure(clients, target, loads, Limits(), bar))
    return Run(engine.name, target.model, asked(loads[0]), summaries, ready_s)


def _show(console: Console, runs: Sequence[Run], files: Files) -> None:
    found = ratios(runs)
    if found:
        console.print(as_table(found))
    for name in dict.fromkeys(run.name for run in runs):
        times = [run.ready_s for run in runs if run.name == name and run.ready_s is not None]
        if times:
            console.print(f"{name} was ready after {statistics.median(times):.1f} s")
    if files.json is not None:
        files.json.write_text(as_json(runs, ratios=[dataclasses.asdict(ratio) for ratio in found]))
    if files.plot is not None:
        plot_runs(runs, files.plot)
