"""`fourstroke bench accuracy`: the figures of its program become a table and a file."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from fourstroke.common.config import Config
from fourstroke.common.figures import Figure, summarise
from fourstroke.launch.bench import accuracy
from fourstroke.launch.bench.accuracy import COLUMNS, as_table, bench_accuracy

FIGURES = [
    summarise(case, what, "", [value])
    for case, values in (("float32", (24.067, 100, 100, 8)), ("int8", (24.1336, 98.13, 78.1, 3)))
    for what, value in zip(COLUMNS, values, strict=True)
]


def test_the_table() -> None:
    """A row for each precision, in the order in which they come."""
    text = io.StringIO()
    Console(file=text, width=150).print(as_table(FIGURES))
    rows = [" ".join(line.split()) for line in text.getvalue().splitlines()]
    assert [row for row in rows if row][2:] == ["float32 24.07 100 100 8", "int8 24.13 98.13 78.1 3"]


def test_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It holds every figure, and the program is told how long texts are."""
    asked = []

    def measured(_config: Config, tokens: int) -> list[Figure]:
        asked.append(tokens)
        return FIGURES

    monkeypatch.setattr(accuracy, "measure", measured)
    bench_accuracy(Config(model="m", served_model_names=("m",)), 64, tmp_path / "figures.json")
    written = json.loads((tmp_path / "figures.json").read_text())["figures"]
    assert [(one["case"], one["what"], one["p50"]) for one in written] == [(f.case, f.what, f.p50) for f in FIGURES]
    assert asked == [64]
