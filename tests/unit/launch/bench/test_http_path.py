"""`fourstroke bench http` with a tiny server in place of ours: what is started, asked for, shown and written."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from rich.console import Console

from fourstroke.launch.bench import http_path
from fourstroke.launch.bench.http_path import as_table, cores_for, fields_of
from fourstroke.launch.cli import run

from .fake_server import INPUT_TOKENS, FakeServer, fake_server
from .made import made_costs

pytest.importorskip("aiohttp")


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with fake_server() as server:
        yield server


@pytest.fixture
def started(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The flags of each server that was to be started; the tiny one stands in for it."""
    flags: list[list[str]] = []

    class StandIn:
        def __init__(self, own: list[str]) -> None:
            flags.append(own)
            self.url = server.url

        def close(self) -> None:
            flags.append(["closed"])

    monkeypatch.setattr(http_path, "PrivateServer", StandIn)
    return flags


def test_the_command(
    server: FakeServer, started: list[list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A server with the fake executor and room for all streams; two prompts of ids for each; figures that agree."""
    file = tmp_path / "found.json"
    command = ["bench", "http", "--streams", "3", "--step", "0.5", "--input-tokens", "9", "--output-tokens", "4"]
    assert run([*command, "--json", str(file), "--", "--log-level", "error"]) == 0
    own = ["--executor=fake", "--fake-step=0.5", "--max-num-seqs=3", "--log-level", "error"]
    assert started == [own, ["closed"]]
    assert [len(body["prompt"]) for body in server.bodies] == [9] * (1 + 6)
    found = json.loads(file.read_text())
    (measured,) = found["runs"][0]["loads"]
    assert (measured["requests"], measured["failed"], measured["input_tokens"]) == (6, 0, 6 * INPUT_TOKENS)
    assert found["ideal_tokens_s"] == 3 / 0.5 and found["chunks"] == measured["output_tokens"] == 24
    assert found["share_of_ideal"] == measured["output_tokens_s"] / 6
    assert found["cpu_s"].keys() == {"bench", "client"}
    assert "of the ideal, 6 tokens/s" in " ".join(capsys.readouterr().out.split())


def test_the_flame_graph(
    server: FakeServer, started: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The load runs once more while it is drawn, with other prompts, and only the first time is measured."""
    drawn: list[tuple[str, int, int]] = []

    @contextmanager
    def flame_graph(spy: str, file: Path) -> Iterator[None]:
        before = len(server.bodies)
        yield
        drawn.append((f"{spy} {file.name}", before, len(server.bodies)))

    monkeypatch.setattr(http_path, "find_spy", lambda: "spy")
    monkeypatch.setattr(http_path, "flame_graph", flame_graph)
    file = tmp_path / "found.json"
    flags = ["--streams", "2", "--requests", "5", "--flame", str(tmp_path / "f.svg"), "--json", str(file)]
    assert run(["bench", "http", *flags]) == 0
    assert drawn == [("spy f.svg", 1 + 5, 1 + 5 + 5)]
    assert json.loads(file.read_text())["runs"][0]["loads"][0]["requests"] == 5
    prompts = [tuple(body["prompt"]) for body in server.bodies]
    assert len(set(prompts)) == len(prompts)


def test_figures() -> None:
    """At half the ideal for one core, the ideal takes two."""
    costs = made_costs(streams=256, rate=16_000, wall_s=2, cpu_s={"ingest": 1.5, "client": 0.5})
    assert cores_for(costs, 32_000) == 2
    found = fields_of(costs, 32_000)
    assert (found["share_of_ideal"], found["chunks"], found["chunks_s"]) == (0.5, 16_000, 8_000)


def test_the_table() -> None:
    """The busiest process first, then all; of a chunk and of a token."""
    text = io.StringIO()
    costs = made_costs(streams=2, rate=1000, wall_s=2, cpu_s={"output": 0.1, "ingest": 0.4})
    Console(file=text, width=100).print(as_table(costs))
    rows = [" ".join(line.split()) for line in text.getvalue().splitlines() if line.strip()]
    assert rows[2:] == ["ingest 0.40 0.20 400.0 200.0", "output 0.10 0.05 100.0 50.0", "all 0.50 0.25 500.0 250.0"]
