"""What is told of a run, and the verdict over its answers."""

from __future__ import annotations

import dataclasses
import json

from rich.console import Console

from fourstroke.launch.bench.record import Record
from fourstroke.launch.chaos.blows import KILL, STOP, Blow, Recovery
from fourstroke.launch.chaos.books import Holdings
from fourstroke.launch.chaos.report import Found, as_json, as_table, longest_pause_s, trends_table
from fourstroke.launch.chaos.soak import Samples
from fourstroke.launch.chaos.trial import judged
from fourstroke.launch.completions import Choice, Completion

from .made import made_ask, made_heard

ANSWER = Completion("p", (Choice("text", "stop", None),), 3, 4, 0)
EXPECTED = {made_ask().title: ANSWER}
RECOVERIES = [
    Recovery(Blow(1.0, "output0", KILL), 101.0, 103.0),
    Recovery(Blow(5.0, "output1", KILL), 105.0, 106.0),
    Recovery(Blow(9.0, "executor0", STOP), 109.0, None),
]


def record(*chunks_s: float) -> Record:
    return Record(chunks_s[0], chunks_s[-1], chunks_s, 1, 1)


def found() -> Found:
    samples = Samples(lambda: Holdings({"output0": 9}, {"output0": 1 << 20}, {"board": 512}))
    samples.look(0.0)
    heard = [made_heard(ANSWER, 100.0, 100.9, 104.0, 104.1)]
    return Found(7, 10.0, heard, RECOVERIES, samples, ["something"])


def test_the_longest_pause() -> None:
    """Of a stream that was open when the blow fell or before all was well again; gaps before and after do not count."""
    recovery = RECOVERIES[0]
    assert longest_pause_s(recovery, [record(90, 100, 102, 102.5, 104, 200)]) == 2.0
    assert longest_pause_s(recovery, [record(90, 100.5), record(103.5, 110)]) == 0.0
    assert longest_pause_s(recovery, [record(100, 100.5), record(101.5, 102, 106), record(50, 103)]) == 53
    assert longest_pause_s(RECOVERIES[2], [record(100, 120, 150)]) == 30.0
    assert longest_pause_s(recovery, []) == 0.0


def test_the_table() -> None:
    """A row for each role and kind of blow; who never came back is told so."""
    console = Console(width=150)
    with console.capture() as captured:
        console.print(as_table(found()))
        console.print(trends_table(found().samples))
    lines = [line.split() for line in captured.get().splitlines() if "SIG" in line]
    assert lines == [
        ["executor", "SIGSTOP", "1", "never", "never", "0", "0"],
        ["output", "SIGKILL", "2", "1.5", "2", "1.55", "3.1"],
    ]


def test_the_file() -> None:
    """Has every blow, what is wrong, and the seed with which to have it again."""
    told = json.loads(as_json(found()))
    assert (told["seed"], told["requests"], told["wrong"]) == (7, 1, ["something"])
    assert [blow["ready_again_s"] for blow in told["blows"]] == [2.0, 1.0, None]
    assert told["rss_bytes"]["output0"]["first"] == 1 << 20


def test_the_verdict() -> None:
    """Each thing that is wrong once, with how often it was; what is right is not spoken of."""
    other = dataclasses.replace(ANSWER, completion_tokens=5)
    heard = [made_heard(ANSWER), made_heard(other), made_heard(other), made_heard(None, error="UnreachableError: gone")]
    assert judged(EXPECTED, heard) == [
        "greedy, streamed: 5 completion tokens instead of 4 (2 times)",
        "greedy, streamed: UnreachableError: gone",
    ]
    assert judged(EXPECTED, heard[:1]) == []
