"""`fourstroke kernels`: the program that compiles is started with what was asked for, and its end is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fourstroke.common.errors import ConfigError, ServerError
from fourstroke.launch import cli
from fourstroke.launch import kernels as launcher
from fourstroke.launch.cli import run
from fourstroke.launch.kernels import kernels


def test_what_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names go to the program as they were given; by default all kernels and all architectures."""
    orders: list[tuple[object, ...]] = []
    monkeypatch.setattr(cli, "kernels", lambda *order: orders.append(order))
    assert run(["kernels", "check"]) == 0
    assert run(["kernels", "show", "--arch", "gfx942", "gfx950", "--kernel", "mat*", "rope"]) == 0
    assert orders == [("check", [], ["*"]), ("show", ["gfx942", "gfx950"], ["mat*", "rope"])]


@pytest.mark.parametrize("arguments", [(), ("prove",), ("check", "--arch"), ("check", "--kernel")], ids=" ".join)
def test_refusals(arguments: tuple[str, ...]) -> None:
    """A wrong command line is refused before anything is started."""
    assert run(["kernels", *arguments]) == 2


def write_program(folder: Path, monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    """Put another program in the place of the one that compiles."""
    (folder / "a_program.py").write_text(source)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    monkeypatch.setattr(launcher, "PROGRAM", "a_program")


@pytest.mark.parametrize("status, exit_status", [(0, 0), (1, 1), (3, 2)])
def test_exit_status(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path, status: int, exit_status: int
) -> None:
    """1 for a kernel that is not as it must be, 2 for what was refused; findings pass through, the last line too."""
    write_program(tmp_path, monkeypatch, f"import sys; print('found'); sys.stderr.write('said'); sys.exit({status})")
    assert run(["kernels", "check"]) == exit_status
    out, err = capfd.readouterr()
    assert out == "found\n"
    assert err == ("fourstroke: error: said\n" if status else "")


def test_a_program_that_breaks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its status and its last words are in the error: that is no finding about a kernel."""
    write_program(tmp_path, monkeypatch, "raise RuntimeError('oh')")
    with pytest.raises(ServerError, match=r"(?s)status 1: .*RuntimeError: oh"):
        kernels("check", [], ["*"])


def test_never_interpreted(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The order is the only argument, as JSON; the switch to Triton's interpreter stays here."""
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    write_program(
        tmp_path, monkeypatch, "import os, sys; print(sys.argv[1]); print(os.environ.get('TRITON_INTERPRET'))"
    )
    kernels("show", ["gfx942"], ["rope"])
    order, interpreted = capfd.readouterr().out.splitlines()
    assert json.loads(order) == {"action": "show", "archs": ["gfx942"], "kernels": ["rope"]}
    assert interpreted == "None"


def test_the_program_itself(capfd: pytest.CaptureFixture[str]) -> None:
    """It compiles and shows; a name that there is not is refused in its words."""
    kernels("show", ["gfx1100"], ["silu_mul"])
    out = capfd.readouterr().out
    assert "## gfx1100" in out
    assert "silu_mul." in out
    with pytest.raises(ConfigError, match="no kernel is called 'nope'; there are "):
        kernels("show", [], ["nope"])
