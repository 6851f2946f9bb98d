"""`fourstroke bench scheduler`: runs the scheduler's own benchmark in a process and shows its figures as a table.

Which cases there are, and their targets, that program knows.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from ...common.errors import ConfigError, ServerError, TargetMissed
from ...common.figures import Figure
from ...common.types import EXIT_REFUSED

PROGRAM = "fourstroke.procs.scheduler.bench"
_WIDTH = 150
"""Columns of a table that goes to a file or a pipe."""

_ONE_THREAD = {"OMP_NUM_THREADS": "1"}
"""As the scheduler process has it."""


def bench_scheduler(cases: Sequence[str], steps: int, slack: float, json_file: Path | None) -> None:
    """Measure, print a table, and write all figures to a file.

    Raises TargetMissed if a figure is above `slack` times its target, ConfigError if no case is called so.
    """
    console = Console(highlight=False, width=None if sys.stdout.isatty() else _WIDTH)
    figures = []
    with console.status("measuring") as status:
        for figure in measure({"cases": list(cases), "steps": steps}):
            figures.append(figure)
            status.update(f"measuring: {figure.case} is done")
    console.print(as_table(figures, slack))
    if json_file is not None:
        json_file.write_text(as_json(figures, slack))
    missed = [f"{figure.case} ({figure.what})" for figure in figures if figure.missed(slack)]
    if missed:
        raise TargetMissed(f"{len(missed)} of {len(figures)} figures miss their target: {', '.join(missed)}")


def measure(order: object) -> Iterator[Figure]:
    """The figures of the program, as it measures them."""
    program = subprocess.Popen(
        # -P: modules never come from the folder in which the command happens to be started.
        [sys.executable, "-P", "-m", PROGRAM, json.dumps(order)],
        env={**os.environ, **_ONE_THREAD},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with program, ExitStack() as interrupted:
        interrupted.callback(program.terminate)
        assert program.stdout is not None and program.stderr is not None
        for line in program.stdout:
            yield Figure.read(line)
        said = program.stderr.read().strip()
        interrupted.pop_all()
    if program.returncode == EXIT_REFUSED:
        raise ConfigError(said)
    if program.returncode:
        raise ServerError(f"the benchmark ended with status {program.returncode}: {said[-2000:]}")


def as_table(figures: Sequence[Figure], slack: float) -> Table:
    """The figures with their targets and verdicts."""
    table = Table("case", "figure", "unit", box=box.SIMPLE_HEAD)
    for heading in ("p50", "p99", "max", "target"):
        table.add_column(heading, justify="right")
    table.add_column("verdict")
    table.add_column("of which, p50")
    for figure in figures:
        numbers = (figure.p50, figure.p99, figure.most, figure.target)
        parts = ", ".join(f"{part} {_number(value)}" for part, value in figure.parts.items())
        table.add_row(figure.case, figure.what, figure.unit, *map(_number, numbers), _verdict(figure, slack), parts)
    return table


def _verdict(figure: Figure, slack: float) -> str:
    if figure.target is None:
        return ""
    if not figure.missed(1):
        return "[green]met[/]"
    return "[red]missed[/]" if figure.missed(slack) else f"[yellow]within {slack:g} x[/]"


def _number(value: float | None) -> str:
    """Three digits, or all that stand before the point."""
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def as_json(figures: Sequence[Figure], slack: float) -> str:
    """The figures for a machine."""
    listed = [{**dataclasses.asdict(figure), "missed": figure.missed(slack)} for figure in figures]
    return json.dumps({"slack": slack, "figures": listed}, indent=1, ensure_ascii=False) + "\n"
