"""`fourstroke bench serve` against a tiny server: what it sends, what it counts, what it writes."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from fourstroke.common.errors import ConfigError, ServerError
from fourstroke.launch.bench.clients import Clients
from fourstroke.launch.bench.load import Load, Target
from fourstroke.launch.bench.prompts import Prompts
from fourstroke.launch.bench.record import Record
from fourstroke.launch.bench.report import Run, as_table
from fourstroke.launch.bench.summary import Limits, Summary, as_fields, summarise_load
from fourstroke.launch.cli import run

from .fake_server import INPUT_TOKENS, MODEL, fake_server

pytest.importorskip("aiohttp")

WORDS = Prompts(words=3)


@pytest.fixture(scope="module")
def clients() -> Iterator[Clients]:
    """Two processes that ask."""
    with Clients(2) as asking:
        yield asking


def load(**changes: object) -> Load:
    plain = {"requests": 7, "output_tokens": 5, "prompts": WORDS, "concurrency": 3}
    return Load(**(plain | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize("changes", [{}, {"concurrency": 1}, {"concurrency": 50}, {"concurrency": 0, "rate": 200.0}])
def test_every_request_is_sent_once(clients: Clients, changes: dict[str, object]) -> None:
    """Closed and open, by however many processes: the prompts of the load, each once, greedy and without an end."""
    asked = load(**changes)
    with fake_server() as server:
        records = list(clients.run(Target("t", server.url, MODEL, "key"), asked))
    assert sorted(body["prompt"] for body in server.bodies) == sorted(asked.texts)
    assert {(body["model"], body["max_tokens"], body["temperature"]) for body in server.bodies} == {(MODEL, 5, 0)}
    assert all(body["ignore_eos"] and body["stream"] for body in server.bodies)
    assert set(server.keys) == {"Bearer key"}
    assert [(r.error, r.input_tokens, r.output_tokens, len(r.chunks_s)) for r in records] == 7 * [
        (None, INPUT_TOKENS, 5, 5)
    ]
    assert not asked.concurrency or server.most_open <= asked.concurrency


@pytest.mark.parametrize("busy", [False, True], ids=["idle", "busy"])
def test_a_client_that_dies(busy: bool) -> None:
    """Before its orders or behind them: an error in words, and the others are ended as ever."""
    with fake_server() as server, pytest.raises(ServerError, match="a client process died"), Clients(2) as asking:
        records = asking.run(Target("t", server.url, MODEL), load(requests=2000 if busy else 7))
        if busy:
            next(records)
        victim = asking._processes[0]
        victim.kill()
        victim.wait()
        list(records)
    assert all(process.returncode is not None for process in asking._processes)


def test_times_are_in_order(clients: Clients) -> None:
    """A request begins, gets its chunks, ends; in an open loop it begins when it was to be sent."""
    asked = load(concurrency=0, rate=100.0)
    with fake_server() as server:
        records = list(clients.run(Target("t", server.url, MODEL), asked))
    for record in records:
        times = [record.begun_s, *record.chunks_s, record.ended_s]
        assert times == sorted(times)
    begins = sorted(record.begun_s for record in records)
    arrivals = asked.arrivals_s()
    assert [at - begins[0] for at in begins] == pytest.approx([at - arrivals[0] for at in arrivals])


def test_errors_are_counted(clients: Clients) -> None:
    """A status, and an answer that breaks off, are errors of their requests; the others go on."""
    with fake_server(fail=frozenset({1}), cut=frozenset({2})) as server:
        records = list(clients.run(Target("t", server.url, MODEL), load(concurrency=1)))
    causes = sorted(record.error for record in records if record.error is not None)
    assert len(records) == 7 and len(causes) == 2
    assert causes[0].startswith("HTTP 500") and "out of fuel" in causes[0]
    assert causes[1] == "the answer broke off"


def test_refused_requests_are_no_failures(clients: Clients) -> None:
    """A 429 that says when to come back is a refusal, with its own times; one that does not is a failure."""
    asked = load(concurrency=0, rate=200.0)
    with fake_server(full=frozenset({1, 2, 3}), rude=frozenset({4})) as server:
        records = list(clients.run(Target("t", server.url, MODEL), asked))
    found = summarise_load(asked, records, Limits())
    assert (found.requests, found.refused, found.failed, found.output_tokens) == (7, 3, 1, 15)
    (cause,) = found.errors
    assert cause.startswith("HTTP 429") and "4 wait" in cause
    assert found.refusal.p50 > 0
    again = Summary.of_fields(json.loads(json.dumps(as_fields(found))))
    assert again == found
    fields = as_fields(found)
    del fields["refusal"], fields["refused"]
    assert Summary.of_fields(fields).refused == 0, "a file of before"
    console = Console(width=200)
    with console.capture() as captured:
        console.print(as_table(Run("n", "m", "asked", (found,)), False))
    assert "until refused" in captured.get()


def test_a_server_that_does_not_count(clients: Clients) -> None:
    """Without usage, chunks with text are tokens; the last one without text is none."""
    with fake_server(mute=frozenset(range(7))) as server:
        records = list(clients.run(Target("t", server.url, MODEL), load()))
    assert {(record.input_tokens, record.output_tokens) for record in records} == {(0, 5)}


def test_nobody_there(clients: Clients) -> None:
    """No connection is an error of each request."""
    with fake_server() as server:
        pass
    records = list(clients.run(Target("t", server.url, MODEL), load()))
    assert len(records) == 7 and all(record.error for record in records)


def test_a_record_travels() -> None:
    """A record is the same after a line of JSON."""
    record = Record(1.5, 3.0, (1.75, 2.5), 7, 2, "why")
    assert Record.read(record.line) == record


# The command


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A table, a file with all figures that sum up, a plot beside an earlier run."""
    first, second, plot = tmp_path / "1.json", tmp_path / "2.json", tmp_path / "p.svg"
    command = ["bench", "serve", "--requests", "4", "--output-tokens", "5", "--concurrency", "1", "2"]
    with fake_server(fail=frozenset({4})) as server:
        command += ["--url", server.url]
        assert run([*command, "--json", str(first), "--ttft-limit", "1e9", "--itl-limit", "1e9"]) == 0
        assert run([*command, "--json", str(second), "--name", "again", "--ttft-limit", "1e-9"]) == 0
        if importlib.util.find_spec("matplotlib"):
            assert run([*command, "--with", str(first), str(second), "--plot", str(plot), "--name", "third"]) == 0
            drawn = plot.read_text()
            assert drawn.startswith("<?xml") and drawn.count("fill-opacity: 0.2") >= 6
    (one,) = json.loads(first.read_text())["runs"]
    assert one["name"] == one["model"] == MODEL
    alone, two = one["loads"]
    assert (alone["concurrency"], alone["requests"], alone["failed"], alone["output_tokens"]) == (1, 4, 1, 15)
    assert (two["failed"], two["output_tokens"], two["input_tokens"]) == (0, 20, 4 * INPUT_TOKENS)
    assert alone["goodput"] == alone["requests_s"] and list(alone["errors"].values()) == [1]
    (again,) = json.loads(second.read_text())["runs"]
    assert again["name"] == "again" and again["loads"][0]["goodput"] == 0
    assert "out of fuel" in capsys.readouterr().out


def test_all_requests_fail(capfd: pytest.CaptureFixture[str]) -> None:
    """Then there is nothing to show: status 1, and the cause."""
    with fake_server(fail=frozenset(range(9))) as server:
        assert run(["bench", "serve", "--url", server.url, "--concurrency", "1"]) == 1
    assert "answered no request: HTTP 500" in capfd.readouterr().err


@pytest.mark.parametrize(
    "more, said",
    [
        (["--plot", "p.jpg"], ".svg or .png"),
        (["--with", "/no/such.json"], "such.json"),
        (["--concurrency", "0"], "above 0"),
        (["--", "--dtype", "float32"], "flags after --"),
        (["--prompts", "/no/such/file"], "--prompts"),
    ],
)
def test_wrong_command_lines(capfd: pytest.CaptureFixture[str], more: list[str], said: str) -> None:
    """They are refused before anything is sent."""
    with fake_server() as server:
        assert run(["bench", "serve", "--url", server.url, *more]) == 2
    assert not server.bodies
    assert said in capfd.readouterr().err


def test_prompts() -> None:
    """As many words, ids or lines as asked; the same seed draws the same, another one others."""
    assert [len(str(prompt).split()) for prompt in WORDS.draw(4, "a")] == [3] * 4
    assert WORDS.draw(4, "a") == WORDS.draw(4, "a") != WORDS.draw(4, "b")
    assert [len(prompt) for prompt in Prompts(tokens=6).draw(4, "a")] == [6] * 4
    dealt = Prompts(lines=("x", "y", "z")).draw(7, "a")
    assert sorted(dealt[:3]) == sorted(dealt[3:6]) == ["x", "y", "z"] and len(dealt) == 7


def test_a_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the extra brings is asked for in words."""
    monkeypatch.setattr("fourstroke.launch.bench.clients.find_spec", lambda _: None)
    with pytest.raises(ConfigError, match=r"aiohttp.*fourstroke\[bench\]"):
        Clients(1)
