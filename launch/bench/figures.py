"""Figures of a measuring program: it is started as a process, and what it writes becomes a table and a JSON file.

Which cases there are, and their targets, that program knows.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack

from rich import box
from rich.console import Console
from rich.table import Table

from ...common.errors import ConfigError, ServerError
from ...common.figures import Figure
from ...common.types import EXIT_REFUSED

_WIDTH = 150
"""Columns of a table that goes to a file or a pipe."""


def make_console() -> Console:
    return Console(highlight=False, width=None if sys.stdout.isatty() else _WIDTH)


def figures_of(program: str, order: object, env: Mapping[str, str]) -> Iterator[Figure]:
    """The figures of a program, as it measures them. Raises ConfigError with its words if it refuses the order."""
    process = subprocess.Popen(
        # -P: modules never come from the folder in which the command happens to be started.
        [sys.executable, "-P", "-m", program, json.dumps(order)],
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process, ExitStack() as interrupted:
        interrupted.callback(process.terminate)
        assert process.stdout is not None and process.stderr is not None
        for line in process.stdout:
            yield Figure.read(line)
        said = process.stderr.read().strip()
        interrupted.pop_all()
    if process.returncode == EXIT_REFUSED:
        raise ConfigError(said)
    if process.returncode:
        raise ServerError(f"the benchmark ended with status {process.returncode}: {said[-2000:]}")


def as_table(figures: Sequence[Figure], slack: float) -> Table:
    """The figures with their targets and verdicts."""
    table = Table("case", "figure", "unit", box=box.SIMPLE_HEAD)
    for heading in ("p50", "p99", "max", "target"):
        table.add_column(heading, justify="right")
    table.add_column("verdict")
    table.add_column("of which, p50")
    for figure in figures:
        numbers = (figure.p50, figure.p99, figure.most, figure.target)
        parts = ", ".join(f"{part} {number(value)}" for part, value in figure.parts.items())
        table.add_row(figure.case, figure.what, figure.unit, *map(number, numbers), _verdict(figure, slack), parts)
    return table


def _verdict(figure: Figure, slack: float) -> str:
    if figure.target is None:
        return ""
    if not figure.missed(1):
        return "[green]met[/]"
    return "[red]missed[/]" if figure.missed(slack) else f"[yellow]within {slack:g} x[/]"


def number(value: float | None) -> str:
    """Three digits, or all that stand before the point."""
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def as_json(figures: Sequence[Figure], slack: float) -> str:
    """The figures for a machine."""
    listed = [{**dataclasses.asdict(figure), "missed": figure.missed(slack)} for figure in figures]
    return json.dumps({"slack": slack, "figures": listed}, indent=1, ensure_ascii=False) + "\n"
