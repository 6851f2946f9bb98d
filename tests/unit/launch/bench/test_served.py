"""`fourstroke bench served`: the bare loop and a server take turns; their ratio, and who had the cores."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from fourstroke.common.config import Config
from fourstroke.common.figures import Figure, summarise
from fourstroke.launch.bench import served
from fourstroke.launch.bench.executor import Work
from fourstroke.launch.bench.load import Load
from fourstroke.launch.bench.prompts import Prompts
from fourstroke.launch.bench.served import Pair, as_table, bench_served

from .fake_server import FakeServer, fake_server
from .made import made_costs

pytest.importorskip("aiohttp")

CONFIG = Config(model="m", served_model_names=("m",))
BARE = {1: 50.0, 2: 80.0}


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[object]]:
    """What is done, in order: the work of a bare loop, the flags of a server, the prompts that it has had."""
    done: list[object] = []

    def measure(config: Config, work: Work) -> Iterator[Figure]:
        done.append((config, work))
        for rows in work.rows:
            yield summarise(f"{rows} rows", "all", "ms", [1.0])
            yield summarise(f"{rows} rows", "output", "tokens/s", [BARE[rows]])
        yield summarise("prefill-6", "rate", "tokens/s", [7.0])

    class StandIn:
        def __init__(self, flags: list[str]) -> None:
            done.append(flags)
            self.url = server.url

        def close(self) -> None:
            done.append([tuple(body["prompt"]) for body in server.bodies])
            server.bodies.clear()

    monkeypatch.setattr(served, "measure_model", measure)
    monkeypatch.setattr(served, "PrivateServer", StandIn)
    server: FakeServer
    with fake_server() as server:
        yield done


def loads() -> list[Load]:
    return [
        Load(requests=3, output_tokens=4, prompts=Prompts(tokens=6), concurrency=streams, seed="s") for streams in BARE
    ]


def test_they_take_turns(turns: list[object], tmp_path: Path) -> None:
    """Bare, served, bare, served: rows as streams, lengths alike, other prompts in each turn; ratios that agree."""
    file = tmp_path / "found.json"
    bench_served(CONFIG, ["--flag"], loads(), 2, 1, file)
    work = Work([1, 2], 6, 4, 6, 1)
    bare, flags, prompts, *again = turns
    assert (bare, flags, again[:2]) == ((CONFIG, work), ["--flag"], [bare, flags])
    assert isinstance(prompts, list) and isinstance(again[2], list)
    every = prompts + again[2]
    assert len(every) == len(set(every)) == 2 * 2 * (1 + 3) and {len(prompt) for prompt in every} == {6}
    found = json.loads(file.read_text())
    assert [(pair["streams"], pair["bare_tokens_s"]) for pair in found["pairs"]] == 2 * [(1, 50.0), (2, 80.0)]
    for pair, load in zip(found["pairs"], found["runs"][0]["loads"], strict=True):
        assert pair["streams"] == load["concurrency"] and load["output_tokens"] == 3 * 4
        assert pair["ratio"] == load["output_tokens_s"] / pair["bare_tokens_s"]


def test_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all cores' time: the executor's, the clients' with the bench's, and what is left of ours."""
    monkeypatch.setattr(served, "usable_cores", lambda: 4)
    cpu_s = {"executor": 4.0, "ingest": 0.5, "output": 0.25, "launcher": 0.05, "client": 1.0, "bench": 0.2}
    pair = Pair(50, made_costs(streams=1, rate=40, wall_s=2, cpu_s=cpu_s))
    assert pair.ratio == 0.8
    assert pair.shares() == pytest.approx((50, 10, 15))


def test_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Medians of the repetitions, and the spread of the ratio."""
    monkeypatch.setattr(served, "usable_cores", lambda: 2)
    pairs = [
        Pair(bare, made_costs(streams=8, rate=rate, cpu_s={"executor": 1.0, "ingest": 0.5, "client": 0.1}))
        for bare, rate in ((100, 90), (200, 100), (400, 80))
    ]
    text = io.StringIO()
    Console(file=text, width=120).print(as_table(pairs))
    assert " ".join(text.getvalue().splitlines()[-2].split()) == "8 200 90 0.50 (0.20-0.90) 50.0 25.0 5.0"
