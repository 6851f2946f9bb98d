"""`fourstroke bench scheduler`: runs the scheduler's own benchmark in a process and shows its figures as a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from ...common.errors import TargetMissed
from ...common.figures import Figure
from .figures import as_json, as_table, figures_of, make_console

PROGRAM = "fourstroke.procs.scheduler.bench"

_ONE_THREAD = {"OMP_NUM_THREADS": "1"}
"""As the scheduler process has it."""


def bench_scheduler(cases: Sequence[str], steps: int, slack: float, json_file: Path | None) -> None:
    """Measure, print a table, and write all figures to a file.

    Raises TargetMissed if a figure is above `slack` times its target, ConfigError if no case is called so.
    """
    console = make_console()
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
    return figures_of(PROGRAM, order, _ONE_THREAD)
