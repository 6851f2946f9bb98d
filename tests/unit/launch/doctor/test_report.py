"""What the doctor shows, and the status with which it ends."""

from __future__ import annotations

import io
import json
import subprocess
import sys

import pytest
from rich.console import Console

from fourstroke.common.finding import Finding, green, red, yellow
from fourstroke.launch.cli import run
from fourstroke.launch.doctor import report
from fourstroke.launch.doctor.machine import look
from fourstroke.launch.doctor.report import json_of, order_for, table_of

GREEN, YELLOW = green("cores", "8 of 8"), yellow("open files", "up to 256", "raise [the] limit")
RED = red("torch", "none", "install it")


@pytest.fixture
def examined(monkeypatch: pytest.MonkeyPatch) -> list[Finding]:
    """What will be found, all in all."""
    findings: list[Finding] = []
    monkeypatch.setattr(report, "check", lambda machine: findings[:1])
    monkeypatch.setattr(report, "examine", lambda order, seconds: findings[1:])
    return findings


def test_the_table() -> None:
    """A line for each finding; advice, with whatever is in it, stands below and names the level in words."""
    text = io.StringIO()
    Console(file=text, width=100).print(table_of([GREEN, YELLOW, RED]))
    assert [" ".join(line.split()) for line in text.getvalue().splitlines() if line.strip()] == [
        "● cores 8 of 8",
        "● open files up to 256",
        "yellow: raise [the] limit",
        "● torch none",
        "red: install it",
    ]


@pytest.mark.parametrize(
    "findings, level, status",
    [([GREEN], "green", 0), ([GREEN, YELLOW], "yellow", 0), ([RED, GREEN, YELLOW], "red", 1), ([GREEN, RED], "red", 1)],
)
def test_status(
    examined: list[Finding], capfd: pytest.CaptureFixture[str], findings: list[Finding], level: str, status: int
) -> None:
    """1 if anything is red, wherever it was found, else 0; JSON goes to standard output alone, and is whole."""
    examined.extend(findings)
    assert run(["doctor", "--json"]) == status
    out, err = capfd.readouterr()
    found = json.loads(out)
    assert found["level"] == level
    assert [Finding(**fields) for fields in found["findings"]] == findings
    assert err == ("fourstroke: error: to be mended: torch\n" if status else "")


def test_the_table_is_shown_without_json(examined: list[Finding], capfd: pytest.CaptureFixture[str]) -> None:
    """The default is for people."""
    examined.append(YELLOW)
    assert run(["doctor"]) == 0
    assert "raise [the] limit" in capfd.readouterr().out


def test_json_keeps_letters() -> None:
    """Names are written as they are."""
    assert "Prozeßor" in json_of([green("processor", "Prozeßor")])


def test_the_order_is_json() -> None:
    """What the program is told can be told."""
    assert json.loads(json.dumps(order_for(look()))).keys() == {"cores", "amd_cards", "variables", "kernels"}


def test_the_launcher_never_imports_torch() -> None:
    """A torch that crashes on import cannot take the doctor with it."""
    program = "import sys, fourstroke.launch.doctor.report; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
