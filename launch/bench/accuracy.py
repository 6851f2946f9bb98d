"""`fourstroke bench accuracy`: what precision costs, in one process, with a server's threads."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich import box
from rich.table import Table

from ...common.config import Config
from ...common.figures import Figure
from ...common.machine import usable_cores
from ..topology import build
from .figures import as_json, figures_of, make_console

PROGRAM = "fourstroke.procs.executor.bench.accuracy"

COLUMNS = {
    "perplexity": "perplexity",
    "likeliest": "same likeliest token, %",
    "greedy": "greedy text before it parts, %",
    "texts": "greedy texts that never part",
}
"""The figures of the program, and what they are called in the table. All but the first are about float32's."""


def bench_accuracy(config: Config, tokens: int, json_file: Path | None) -> None:
    """Measure, print a table, and write all figures to a file. Raises ConfigError if a precision cannot be had."""
    console = make_console()
    figures = []
    with console.status("loading the model") as status:
        for figure in measure(config, tokens):
            figures.append(figure)
            status.update(f"measuring: {figure.case} is done")
    console.print(as_table(figures))
    if json_file is not None:
        json_file.write_text(as_json(figures, 1))


def measure(config: Config, tokens: int) -> Iterator[Figure]:
    """The figures of the program, in the environment of an executor process."""
    executor = next(spec for spec in build(config, usable_cores()).processes if spec.role == "executor")
    return figures_of(PROGRAM, {"config": dataclasses.asdict(config), "tokens": tokens}, executor.env)


def as_table(figures: Sequence[Figure]) -> Table:
    """A row for each precision."""
    table = Table("precision", box=box.SIMPLE_HEAD)
    for heading in COLUMNS.values():
        table.add_column(heading, justify="right")
    values = {(figure.case, figure.what): figure.p50 for figure in figures}
    for case in dict.fromkeys(figure.case for figure in figures):
        table.add_row(case, *(f"{values[case, what]:.4g}" for what in COLUMNS))
    return table
