"""Runs of loads for people and for machines: a table, a JSON file that can be read again."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table

from ...common.errors import ConfigError
from .figures import number
from .summary import Spread, Summary, as_fields


@dataclass(frozen=True, slots=True)
class Run:
    """Some loads on one server. `asked` says what was asked for, in words; `ready_s` how long it took to start."""

    name: str
    model: str
    asked: str
    loads: tuple[Summary, ...]
    ready_s: float | None = None

    @property
    def fields(self) -> dict[str, Any]:
        """The run for a JSON file."""
        return {
            "name": self.name,
            "model": self.model,
            "asked": self.asked,
            "ready_s": self.ready_s,
            "loads": [as_fields(summary) for summary in self.loads],
        }

    @classmethod
    def of_fields(cls, fields: dict[str, Any]) -> Run:
        """Raises TypeError or KeyError if it is none."""
        return cls(**{**fields, "loads": tuple(map(Summary.of_fields, fields["loads"]))})


def read_runs(path: Path) -> list[Run]:
    """The runs of a JSON file. Raises ConfigError."""
    try:
        return [Run.of_fields(run) for run in json.loads(path.read_text())["runs"]]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ConfigError(f"{path} holds no runs of this benchmark: {error}") from None


def as_json(runs: Sequence[Run], **more: object) -> str:
    return json.dumps({"runs": [run.fields for run in runs], **more}, indent=1, ensure_ascii=False) + "\n"


def as_table(run: Run, goodput: bool) -> Table:
    """A row for each load; times in ms."""
    refused = any(load.refused for load in run.loads)
    table = Table(title=f"{run.name}: {run.asked}", title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("load")
    counts = ["requests", "failed", *(["refused"] if refused else [])]
    for heading in (*counts, "out tok/s", "all tok/s", "requests/s", *(["good/s"] if goodput else [])):
        table.add_column(heading, justify="right")
    times = ["TTFT p50 / p90 / p99", "between tokens", "latency", *(["until refused"] if refused else [])]
    for heading in times:
        table.add_column(heading, justify="right")
    for load in run.loads:
        table.add_row(load.name, *_cells(load, goodput, refused))
    return table


def _cells(load: Summary, goodput: bool, refused: bool) -> Iterator[str]:
    yield from map(str, (load.requests, load.failed, *([load.refused] if refused else [])))
    rates = (load.output_tokens_s, load.total_tokens_s, load.requests_s, *([load.goodput] if goodput else []))
    yield from map(number, rates)
    yield from map(_times, (load.ttft, load.itl, load.latency, *([load.refusal] if refused else [])))


def _times(spread: Spread) -> str:
    return " / ".join(map(number, (spread.p50, spread.p90, spread.p99)))
