"""Flame graphs: a program stands in for py-spy, and one with the launcher's name for the server."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fourstroke.common.errors import ConfigError, ServerError
from fourstroke.launch.bench.flame import find_spy, flame_graph

LAUNCHER = """
import setproctitle, sys
setproctitle.setproctitle("fourstroke: launcher")
print(flush=True)
sys.stdin.read()
"""

SPY = """#!{python}
import pathlib, signal, sys
options = dict(zip(sys.argv[1:], sys.argv[2:]))
waiting = [signal.SIGINT]
signal.pthread_sigmask(signal.SIG_BLOCK, waiting)
pathlib.Path({ready!r}).write_text("")
if {broken}:
    sys.exit("nobody may look")
signal.sigwait(waiting)
pathlib.Path(options["--output"]).write_text(options["--pid"])
"""
"""Opens a pipe when it is ready; writes, once it is interrupted, into its file whom it was to watch."""


@pytest.fixture
def launcher() -> Iterator[int]:
    """The pid of a process that is called as the launcher is."""
    with subprocess.Popen(
        [sys.executable, "-c", LAUNCHER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdout.readline()
        yield process.pid
        process.stdin.close()


def spy(folder: Path, broken: bool = False) -> str:
    file, ready = folder / "py-spy", folder / "ready"
    os.mkfifo(ready)
    file.write_text(SPY.format(python=sys.executable, broken=broken, ready=str(ready)))
    file.chmod(0o755)
    return str(file)


def test_it_is_drawn(launcher: int, tmp_path: Path) -> None:
    """py-spy watches the launcher until the work is done, and then writes."""
    file, program = tmp_path / "f.svg", spy(tmp_path)
    file.write_text("of yesterday")
    with flame_graph(program, file):
        (tmp_path / "ready").read_text()
        assert not file.exists()
    assert file.read_text() == str(launcher)


def test_it_cannot_be_drawn(launcher: int, tmp_path: Path) -> None:
    """Then its last words are the error, and a file of an earlier run does not look like this one's."""
    file = tmp_path / "f.svg"
    file.write_text("of yesterday")
    with pytest.raises(ServerError, match="nobody may look"), flame_graph(spy(tmp_path, broken=True), file):
        (tmp_path / "ready").read_text()
    assert not file.exists()


def test_an_error_meanwhile(launcher: int, tmp_path: Path) -> None:
    """What goes wrong while it is drawn is the error, and py-spy has ended."""
    with pytest.raises(ValueError, match="of the work"), flame_graph(spy(tmp_path), tmp_path / "f.svg"):
        (tmp_path / "ready").read_text()
        raise ValueError("of the work")
    assert (tmp_path / "f.svg").exists()


def test_where_py_spy_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside Python, else in the search path; else the error says how to get it."""
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="pip install py-spy"):
        find_spy()
    for folder in (tmp_path, tmp_path / "bin"):
        folder.mkdir(exist_ok=True)
        (folder / "py-spy").touch(0o755)
        assert find_spy() == str(folder / "py-spy")
