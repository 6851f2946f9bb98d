"""`fourstroke doctor`: gathers all findings and shows them, as a table for people or as JSON for programs."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ...common.errors import MachineUnfit
from ...common.finding import Finding, Level
from ..model_source import kernel_folder
from .checks import check
from .machine import Machine, look
from .program import examine

_WIDTH = 150
"""Columns of a table that goes to a file or a pipe."""


def doctor(as_json: bool, seconds: float) -> None:
    """Look at the machine, test it, and print what was found. Raises MachineUnfit if something is red.

    The tests may take so many seconds.
    """
    console = Console(highlight=False, width=None if sys.stdout.isatty() else _WIDTH)
    machine = look()
    with Console(stderr=True).status("testing torch and its devices"):
        findings = [*check(machine), *examine(order_for(machine), seconds)]
    if as_json:
        sys.stdout.write(json_of(findings))
    else:
        console.print(table_of(findings))
    bad = [finding.subject for finding in findings if finding.level == Level.RED]
    if bad:
        raise MachineUnfit(f"to be mended: {', '.join(bad)}")


def order_for(machine: Machine) -> object:
    """What the program that tests torch is to know of the machine."""
    return {
        "cores": machine.cores,
        "amd_cards": machine.cards,
        "variables": list(machine.variables),
        "kernels": str(kernel_folder()),
    }


def table_of(findings: Sequence[Finding]) -> Table:
    """A row for each finding, its advice below what was found."""
    table = Table(box=box.SIMPLE_HEAD, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column()
    for finding in findings:
        subject = f"[{finding.level}]● {escape(finding.subject)}[/]"
        advice = f"\n[{finding.level}]{finding.level}:[/] {escape(finding.advice)}" if finding.advice else ""
        table.add_row(subject, escape(finding.found) + advice)
    return table


def json_of(findings: Sequence[Finding]) -> str:
    """The findings for a program, and the worst of their levels."""
    levels = {finding.level for finding in findings}
    worst = next(level for level in (Level.RED, Level.YELLOW, Level.GREEN) if level in levels)
    listed = [dataclasses.asdict(finding) for finding in findings]
    return json.dumps({"level": worst, "findings": listed}, indent=1, ensure_ascii=False) + "\n"
