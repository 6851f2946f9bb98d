"""`fourstroke bench executor`: the model by itself, in one process, with the threads that it has in a server.

Its rate is what a server of the same configuration can reach at most.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

from ...common.config import Config
from ...common.figures import Figure
from ...common.machine import usable_cores
from ..topology import build
from .figures import as_json, as_table, figures_of, make_console

PROGRAM = "fourstroke.procs.executor.bench"


@dataclasses.dataclass(frozen=True, slots=True)
class Work:
    """What the model is to compute: `rows` requests side by side, each with its tokens, and a lone prompt."""

    rows: Sequence[int]
    input_tokens: int
    output_tokens: int
    prefill: int
    repetitions: int


def bench_executor(config: Config, work: Work, json_file: Path | None) -> None:
    """Measure, print a table, and write all figures to a file. Raises ConfigError if the work does not fit."""
    console = make_console()
    figures = []
    with console.status("loading the model") as status:
        for figure in measure(config, work):
            figures.append(figure)
            status.update(f"measuring: {figure.case} is done")
    console.print(as_table(figures, 1))
    if json_file is not None:
        json_file.write_text(as_json(figures, 1))


def measure(config: Config, work: Work) -> Iterator[Figure]:
    """The figures of the program, in the environment of an executor process."""
    executor = next(spec for spec in build(config, usable_cores()).processes if spec.role == "executor")
    order = {"config": dataclasses.asdict(config), **dataclasses.asdict(work)}
    return figures_of(PROGRAM, order, executor.env)
