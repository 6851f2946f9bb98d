"""`fourstroke bench scheduler`: the program that measures is started, its figures are shown, its end is told."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from fourstroke.common.errors import ConfigError, ServerError, TargetMissed
from fourstroke.common.figures import Figure
from fourstroke.launch.bench import scheduler
from fourstroke.launch.bench.figures import as_json, as_table
from fourstroke.launch.bench.scheduler import bench_scheduler, measure
from fourstroke.launch.cli import run

GOOD = Figure("good", "step", "ms", 200, 0.51234, 0.7, 0.8, 1.0, {"plan": 0.25, "settle": 0.125})
SLOW = Figure("slow", "step", "ms", 200, 1.25, 1.5, 1234.5, 1.0)
BAD = Figure("bad", "metadata", "bytes", 200, 20_001, 20_002, 20_003, 20_000)
FREE = Figure("free", "plan", "ms", 200, 7.0, 8.0, 9.0)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """What the program will have measured, whatever it is asked."""
    figures: list[Figure] = []
    monkeypatch.setattr(scheduler, "measure", lambda order: iter(figures))
    return figures


def shown(figures: list[Figure], slack: float) -> list[str]:
    """The rows of the table."""
    text = io.StringIO()
    Console(file=text, width=150).print(as_table(figures, slack))
    return [line.strip() for line in text.getvalue().splitlines() if line.strip()][2:]


def test_the_table() -> None:
    """Numbers with three digits, targets, verdicts, parts."""
    assert [" ".join(row.split()) for row in shown([GOOD, SLOW, BAD, FREE], 1.5)] == [
        "good step ms 0.512 0.7 0.8 1 met plan 0.25, settle 0.125",
        "slow step ms 1.25 1.5 1,234 1 within 1.5 x",
        "bad metadata bytes 20,001 20,002 20,003 20,000 missed",
        "free plan ms 7 8 9",
    ]


@pytest.mark.parametrize(
    "figures, slack, missed",
    [
        ([GOOD, FREE], 1.0, []),
        ([GOOD, SLOW], 1.5, []),
        ([GOOD, SLOW], 1.0, ["slow (step)"]),
        ([SLOW, BAD, FREE], 1.0, ["slow (step)", "bad (metadata)"]),
        ([], 1.0, []),
    ],
)
def test_a_missed_target_is_an_error(
    measured: list[Figure], tmp_path: Path, figures: list[Figure], slack: float, missed: list[str]
) -> None:
    """It names the figures, after the table was shown and the file written; else there is none."""
    measured.extend(figures)
    file = tmp_path / "figures.json"
    if missed:
        with pytest.raises(TargetMissed, match=f"{len(missed)} of {len(figures)} figures") as error:
            bench_scheduler(["*"], 200, slack, file)
        assert all(name in str(error.value) for name in missed)
    else:
        bench_scheduler(["*"], 200, slack, file)
    found = json.loads(file.read_text())
    assert [figure["case"] for figure in found["figures"] if figure["missed"]] == [name.split()[0] for name in missed]


def test_json() -> None:
    """The file has all figures as they were measured, the slack, and what misses its target."""
    found = json.loads(as_json([SLOW, FREE], 1.0))
    assert found["slack"] == 1.0
    first, second = found["figures"]
    assert (first["case"], first["p50"], first["target"], first["missed"]) == ("slow", 1.25, 1.0, True)
    assert (second["target"], second["missed"]) == (None, False)


@pytest.mark.parametrize("slack, status", [("2", 0), ("1", 1)])
def test_exit_status(measured: list[Figure], capfd: pytest.CaptureFixture[str], slack: str, status: int) -> None:
    """1 when a target is missed, and a line that says which."""
    measured.append(SLOW)
    assert run(["bench", "scheduler", "--slack", slack]) == status
    out, err = capfd.readouterr()
    assert "slow" in out
    assert err.startswith("fourstroke: error: 1 of 1 figures") is bool(status)


def test_what_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cases and steps go to the program; by default all cases, 200 steps."""
    orders: list[object] = []

    def measure(order: object) -> Iterator[Figure]:
        orders.append(order)
        return iter(())

    monkeypatch.setattr(scheduler, "measure", measure)
    assert run(["bench", "scheduler"]) == run(["bench", "scheduler", "--cases", "a", "b*", "--steps", "7"]) == 0
    assert orders == [{"cases": ["*"], "steps": 200}, {"cases": ["a", "b*"], "steps": 7}]


# The program itself


def test_the_program_measures() -> None:
    """Started as a process of its own, it gives figures."""
    (figure,) = measure({"cases": ["hashes"], "steps": 1})
    assert (figure.case, figure.p50) == ("hashes", 1)


def test_a_case_that_there_is_not(capfd: pytest.CaptureFixture[str]) -> None:
    """What the program refuses, it has said why, in one line: the command line is wrong."""
    with pytest.raises(ConfigError, match="no case is called 'nope'"):
        list(measure({"cases": ["nope"], "steps": 1}))
    assert run(["bench", "scheduler", "--cases", "nope"]) == 2
    assert "nope" in capfd.readouterr().err


def test_a_program_that_dies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its status and its last words are in the error."""
    monkeypatch.setattr(scheduler, "PROGRAM", "fourstroke.no_such_program")
    with pytest.raises(ServerError, match=r"status 1: .*no_such_program"):
        list(measure({"cases": ["*"], "steps": 1}))
