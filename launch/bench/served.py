"""`fourstroke bench served`: the model by itself and behind a server, in turn, and the ratio of their rates.

The bare loop is that of `bench executor`, with no other process. Served, other processes and the client have the same
cores: what share of their time those take is told beside the ratio.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

from rich import box
from rich.progress import Progress
from rich.table import Table

from ...common.config import Config
from ...common.machine import usable_cores
from ..private_server import PrivateServer
from .clients import Clients, require
from .costs import ASKING, Costs, measure_costs
from .executor import Work
from .executor import measure as measure_model
from .figures import make_console, number
from .load import Load
from .measure import progress, target_at
from .report import Run, as_json
from .serve import asked

_MODEL = ("executor",)


@dataclasses.dataclass(frozen=True, slots=True)
class Pair:
    """One load in one repetition: output tokens/s of the bare loop, and what was served."""

    bare: float
    served: Costs

    @property
    def streams(self) -> int:
        return self.served.summary.concurrency

    @property
    def ratio(self) -> float:
        return self.served.summary.output_tokens_s / self.bare

    def shares(self) -> tuple[float, float, float]:
        """Of the time of all cores, in per cent: the executor's, the other server processes', the clients'."""
        everybody, model, asking = (100 * self.served.cores(roles) / usable_cores() for roles in (None, _MODEL, ASKING))
        return model, everybody - model - asking, asking


def bench_served(
    config: Config, flags: Sequence[str], loads: Sequence[Load], repetitions: int, clients: int, json_file: Path | None
) -> None:
    """Measure, print a table, write the file. `config` is that of a server with these flags.

    All loads are closed loops of prompts of the same number of tokens. Raises ConfigError or ServerError.
    """
    require("aiohttp")
    console = make_console()
    pairs: list[Pair] = []
    name = config.served_model_names[0]
    with progress(console) as bar:
        for repetition in range(repetitions):
            own = [dataclasses.replace(load, seed=f"{load.seed}/{repetition}") for load in loads]
            bare = _bare_rates(config, own, bar)
            with Clients(clients) as asking:  # here: the bare loop is by itself
                pairs += map(Pair, bare, _served(flags, own, asking, bar))
    console.print(f"{name}: {asked(loads[0])}", markup=False)
    console.print(as_table(pairs))
    if json_file is not None:
        run = Run(name, name, asked(loads[0]), tuple(pair.served.summary for pair in pairs))
        json_file.write_text(as_json([run], pairs=list(map(_fields, pairs))))


def _bare_rates(config: Config, loads: Sequence[Load], bar: Progress) -> list[float]:
    """Output tokens/s of the bare loop for each load, as many rows side by side as it has streams."""
    task = bar.add_task("the model by itself", total=None)
    given = loads[0].prompts.tokens
    work = Work([load.concurrency for load in loads], given, loads[0].output_tokens, given, 1)
    rates = [figure.p50 for figure in measure_model(config, work) if figure.what == "output"]
    bar.remove_task(task)
    return rates


def _served(flags: Sequence[str], loads: Sequence[Load], clients: Clients, bar: Progress) -> list[Costs]:
    with closing(PrivateServer(list(flags))) as server:
        target = target_at(server.url, None, "served", None)
        return [measure_costs(clients, target, load, bar) for load in loads]


def _fields(pair: Pair) -> dict[str, object]:
    return {
        "streams": pair.streams,
        "bare_tokens_s": pair.bare,
        "served_tokens_s": pair.served.summary.output_tokens_s,
        "ratio": pair.ratio,
        "cpu_s": dict(pair.served.cpu_s),
    }


def as_table(pairs: Sequence[Pair]) -> Table:
    """A row for each number of streams: medians of its repetitions, and the least and the greatest ratio."""
    title = f"tokens/s; of the time of {usable_cores()} cores while served, per cent"
    table = Table("streams", title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for heading in ("bare", "served", "ratio", "executor", "other processes", "clients"):
        table.add_column(heading, justify="right")
    for streams in dict.fromkeys(pair.streams for pair in pairs):
        table.add_row(str(streams), *_cells([pair for pair in pairs if pair.streams == streams]))
    return table


def _cells(pairs: Sequence[Pair]) -> Iterator[str]:
    yield number(statistics.median(pair.bare for pair in pairs))
    yield number(statistics.median(pair.served.summary.output_tokens_s for pair in pairs))
    ratios = [pair.ratio for pair in pairs]
    yield f"{statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"
    for shares in zip(*(pair.shares() for pair in pairs), strict=True):
        yield f"{statistics.median(shares):.1f}"
