"""`fourstroke bench compare`: engines from a file, started in turn, and their ratios."""

from __future__ import annotations

import dataclasses
import json
import socket
import sys
from pathlib import Path

import psutil
import pytest

from fourstroke.common.errors import ConfigError, ServerError
from fourstroke.launch.bench.engines import Engine, read_engines, running
from fourstroke.launch.bench.ratios import ratios
from fourstroke.launch.bench.report import Run
from fourstroke.launch.cli import run

from .made import made_summary

ENGINE = """
import sys, threading
sys.path.insert(0, {folder!r})
from fake_server import fake_server
with fake_server(int(sys.argv[1])):
    threading.Event().wait()
"""
"""A program that is an engine: the tiny server at a port."""


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    """One that can be started."""
    program, port = tmp_path / "engine.py", free_port()
    program.write_text(ENGINE.format(folder=str(Path(__file__).parent)))
    return Engine("tiny", f"http://127.0.0.1:{port}", (sys.executable, "-P", str(program), str(port)))


def as_toml(engines: list[Engine]) -> str:
    return "".join(
        f"[[engine]]\nname = {json.dumps(engine.name)}\nurl = {json.dumps(engine.url)}\n"
        f"command = {json.dumps(list(engine.command))}\n"
        for engine in engines
    )


def test_a_comparison(tmp_path: Path, engine: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    """A B A B: a run for each turn, the same load for both, and ratios of all figures."""
    port = free_port()
    other = dataclasses.replace(
        engine, name="other", url=f"http://127.0.0.1:{port}", command=(*engine.command[:-1], str(port))
    )
    file, found = tmp_path / "engines.toml", tmp_path / "found.json"
    file.write_text(as_toml([engine, other]))
    command = ["bench", "compare", str(file), "--repetitions", "2", "--concurrency", "1", "2", "--requests", "3"]
    assert run([*command, "--output-tokens", "4", "--json", str(found)]) == 0
    written = json.loads(found.read_text())
    assert [one["name"] for one in written["runs"]] == ["tiny", "other", "tiny", "other"]
    assert all(one["ready_s"] > 0 and [load["failed"] for load in one["loads"]] == [0, 0] for one in written["runs"])
    assert {(ratio["ours"], ratio["theirs"]) for ratio in written["ratios"]} == {("tiny", "other")}
    assert {ratio["load"] for ratio in written["ratios"]} == {"1 at a time", "2 at a time"}
    assert "tiny was ready after" in capsys.readouterr().out


def test_an_engine_is_stopped(engine: Engine) -> None:
    """After its turn nothing of it is left, and what was started by a shell neither."""
    shell = dataclasses.replace(engine, command=("/bin/sh", "-c", '"$@" & wait', "sh", *engine.command))
    for one in (engine, shell):
        with running(one) as ready_s:
            assert ready_s is not None
            mine = psutil.Process().children(recursive=True)
            assert any(engine.command[-1] in child.cmdline() for child in mine)
        assert not any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in mine)


def test_an_engine_that_dies(engine: Engine) -> None:
    """The error has its end and its last words."""
    dying = dataclasses.replace(engine, command=(sys.executable, "-c", "raise SystemExit('no fuel')"))
    with pytest.raises(ServerError, match=r"tiny failed \(exit status 1\); its last words: no fuel"), running(dying):
        pass


def test_an_engine_that_is_late(engine: Engine) -> None:
    """One that does not get ready in time is ended."""
    late = dataclasses.replace(engine, command=("/bin/sleep", "60"))
    with (
        pytest.raises(ServerError, match="tiny is not ready after"),
        running(dataclasses.replace(late, start_timeout_s=0.2)),
    ):
        pass


def test_a_taken_port(engine: Engine) -> None:
    """What answers before the engine is started is something else."""
    with running(engine), pytest.raises(ConfigError, match="before tiny was started"), running(engine):
        pass


def test_variables(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """$NAME and ${NAME} come from the environment; one that is missing is named."""
    monkeypatch.setenv("THE_PROGRAM", engine.command[2])
    with running(dataclasses.replace(engine, command=(*engine.command[:2], "${THE_PROGRAM}", engine.command[3]))):
        pass
    with (
        pytest.raises(ConfigError, match="NO_SUCH_VARIABLE"),
        running(dataclasses.replace(engine, command=("$NO_SUCH_VARIABLE",))),
    ):
        pass


def test_one_that_runs_already() -> None:
    """Without a command nothing is started, and there is no time to be ready."""
    with running(Engine("there", "http://127.0.0.1:9")) as ready_s:
        assert ready_s is None


def test_the_template() -> None:
    """The file in docs can be read, and names can be chosen of it."""
    template = Path(__file__).parents[4] / "docs" / "engines.toml"
    engines = read_engines(template)
    assert engines[0].name == "fourstroke" and len({engine.url for engine in engines}) == len(engines)
    assert [engine.name for engine in read_engines(template, ["llama.cpp"])] == ["llama.cpp"]


@pytest.mark.parametrize(
    "text, said",
    [
        ("nonsense", "cannot read"),
        ("", "an engine has a name"),
        ("[[engine]]\nname = 'a'", "an engine has a name"),
        ("[[engine]]\nname = 'a'\nurl = 'ftp://a'", "must look like"),
        ("[[engine]]\nname = 'a'\nurl = 'http://a:1'\nspeed = 3", "speed"),
        (2 * "[[engine]]\nname = 'a'\nurl = 'http://a:1'\n", "two engines alike"),
    ],
)
def test_wrong_files(tmp_path: Path, text: str, said: str) -> None:
    """A file that is none is refused in words."""
    file = tmp_path / "engines.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=said):
        read_engines(file)


def made_run(name: str, rate: float, ttft_ms: float) -> Run:
    return Run(name, "m", "asked", (made_summary(8, rate, ttft_ms=ttft_ms),))


def test_ratios() -> None:
    """Within each repetition; above 1 is better, of rates and of times; median, least and most."""
    runs = [
        run
        for ours, theirs in ((30, 10), (20, 10), (50, 10))
        for run in (made_run("ours", ours, 100), made_run("theirs", theirs, 200))
    ]
    found = {ratio.figure: ratio for ratio in ratios(runs)}
    rate, ttft = found["output tokens/s"], found["TTFT p50"]
    assert (rate.median, rate.least, rate.most, rate.value) == (3, 2, 5, 30)
    assert (ttft.median, ttft.least, ttft.most, ttft.value) == (2, 2, 2, 100)
    assert ratios([made_run("alone", 1, 1)]) == []
