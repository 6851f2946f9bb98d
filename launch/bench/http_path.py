"""`fourstroke bench http`: what everything around the model can do, and which process spends what on it.

The server has the fake executor, whose steps take a fixed time: an ideal server gives each stream a token a step. All
processes and the clients share the machine, as they do in life.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from ...common.machine import usable_cores
from ..private_server import PrivateServer
from .clients import Clients, require
from .costs import Costs, measure_costs
from .figures import make_console, number
from .flame import find_spy, flame_graph
from .load import Load
from .measure import progress, records_of, target_at
from .report import Run, as_json
from .report import as_table as run_table
from .serve import asked


@dataclasses.dataclass(frozen=True, slots=True)
class Outputs:
    """Where figures and the flame graph go."""

    json: Path | None = None
    flame: Path | None = None


def bench_http(load: Load, step_s: float, clients: int, flags: Sequence[str], outputs: Outputs) -> None:
    """Measure a closed loop, print tables, write the files. `flags` are further ones of `fourstroke serve`.

    The flame graph is of the same load once more, because who is watched is slower. Raises ConfigError or ServerError.
    """
    spy = None if outputs.flame is None else find_spy()
    require("aiohttp")
    console = make_console()
    own = ["--executor=fake", f"--fake-step={step_s}", f"--max-num-seqs={load.concurrency}"]
    with closing(PrivateServer([*own, *flags])) as server, Clients(clients) as asking, progress(console) as bar:
        target = target_at(server.url, None, "fake executor", None)
        costs = measure_costs(asking, target, load, bar)
        if spy is not None and outputs.flame is not None:
            with flame_graph(spy, outputs.flame):
                records_of(asking, target, dataclasses.replace(load, seed=f"{load.seed}/flame"), bar)
    run = Run(target.name, target.model, asked(load), (costs.summary,))
    ideal = load.concurrency / step_s
    _show(console, run, costs, ideal)
    if outputs.json is not None:
        outputs.json.write_text(as_json([run], step_s=step_s, **fields_of(costs, ideal)))


def fields_of(costs: Costs, ideal: float) -> dict[str, object]:
    """The figures for a JSON file; `ideal` is in tokens/s."""
    return {
        "ideal_tokens_s": ideal,
        "share_of_ideal": costs.summary.output_tokens_s / ideal,
        "cores_for_ideal": cores_for(costs, ideal),
        "chunks": costs.chunks,
        "chunks_s": costs.chunks / costs.summary.wall_s,
        "cpu_s": dict(costs.cpu_s),
    }


def _show(console: Console, run: Run, costs: Costs, ideal: float) -> None:
    console.print(run_table(run, False))
    for cause, count in costs.summary.errors.items():
        console.print(f"{count} failed: {cause}", markup=False)
    rate = costs.summary.output_tokens_s
    console.print(
        f"{number(costs.chunks / costs.summary.wall_s)} chunks/s, {number(rate)} tokens/s: {rate / ideal:.2f} of the"
        f" ideal, {number(ideal)} tokens/s, for which this CPU time a token would take {cores_for(costs, ideal):.2f}"
        f" of {usable_cores()} cores"
    )
    console.print(as_table(costs))


def cores_for(costs: Costs, rate: float) -> float:
    """How many cores would be busy at so many tokens/s, if a token cost what it has cost."""
    return costs.cores() * rate / costs.summary.output_tokens_s


def as_table(costs: Costs) -> Table:
    """A row for each name of a process, the busiest first, and one for all together."""
    table = Table("process", box=box.SIMPLE_HEAD)
    for heading in ("CPU, s", "cores", "µs a chunk", "µs a token"):
        table.add_column(heading, justify="right")
    summary = costs.summary
    busiest = sorted(costs.cpu_s.items(), key=lambda item: -item[1])
    for name, spent_s in [*busiest, ("all", sum(costs.cpu_s.values()))]:
        of_each = (f"{spent_s / count * 1e6:.1f}" for count in (costs.chunks, summary.output_tokens))
        table.add_row(name, f"{spent_s:.2f}", f"{spent_s / summary.wall_s:.2f}", *of_each)
    return table
