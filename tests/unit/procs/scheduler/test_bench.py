"""The benchmark: every case runs, at sizes that take no time, and says what its figures are. Nothing here is timed."""

import itertools
import json

import pytest

from fourstroke.common.errors import ConfigError
from fourstroke.common.figures import Figure
from fourstroke.procs.scheduler.bench import __main__ as program
from fourstroke.procs.scheduler.bench.bursts import Endings, PrefillBurst, Received
from fourstroke.procs.scheduler.bench.case import Effort
from fourstroke.procs.scheduler.bench.cases import CASES, chosen
from fourstroke.procs.scheduler.bench.repeats import BlockedHead, Hashes
from fourstroke.procs.scheduler.bench.steady import SteadyDecode

EFFORT = Effort(warm_up=2, steps=20, repeats=3)


def run(case):
    """The figures of a case by what they are of."""
    figures = list(case.run(EFFORT))
    assert {figure.case for figure in figures} == {case.name}
    return {figure.what: figure for figure in figures}


@pytest.mark.parametrize(
    "case, samples",
    [
        (SteadyDecode(5, 64, 0, 1.0, 2.0), {"step": 20, "metadata": 20}),
        (SteadyDecode(5, 2048, 3), {"step": 20, "metadata": 20}),
        (Endings(40, 32, 1.0), {"settle": 3}),
        (Received(6, 20, 1.0), {"tick": 3, "first words": 3, "next plan": 3}),
        (BlockedHead(1024, 1.0), {"probe": 20, "plan": 20}),
        (Hashes(requests=8, blocks=32), {"of a block": 1}),
    ],
    ids=lambda value: value.name if hasattr(value, "name") else "",
)
def test_a_case_has_its_figures(case, samples):
    """So many samples of each; the median, the 99th percentile and the maximum are in order."""
    figures = run(case)
    assert {what: figure.samples for what, figure in figures.items()} == samples
    assert all(0 < figure.p50 <= figure.p99 <= figure.most for figure in figures.values())


def test_a_burst_is_measured_until_nobody_waits():
    """24 prompts of 2,048 tokens are six steps of 8,192; the last of them is admitted in the sixth."""
    figures = run(PrefillBurst(24, 2048))
    assert figures["plan"].samples == figures["step"].samples == 6


def test_targets_come_with_the_figures():
    """Those of a case go to the figures that they are for, and to no others."""
    figures = [
        figure
        for case in (
            SteadyDecode(3, 32, 0, 1.5, 2.5),
            Endings(3, 32, 3.5),
            Received(3, 20, 4.5),
            BlockedHead(1024, 5.5),
        )
        for figure in case.run(EFFORT)
    ]
    targets = {(figure.what, figure.unit): figure.target for figure in figures if figure.target is not None}
    assert targets == {
        ("step", "ms"): 1.5,
        ("metadata", "bytes"): 2.5,
        ("settle", "ms"): 3.5,
        ("tick", "ms"): 4.5,
        ("probe", "µs"): 5.5,
    }


def test_the_parts_of_a_step():
    """A step is plan, message and settle."""
    figures = run(SteadyDecode(3, 32))
    assert list(figures["step"].parts) == ["plan", "message", "settle"]


def test_metadata_are_a_frame_and_columns():
    """Seven words for each row of a decode, three for each block that is new, and a small frame."""
    rows = 5
    most = run(SteadyDecode(rows, 32))["metadata"].most
    assert 28 * rows < most < 28 * rows + 12 * rows + 40


def test_a_block_is_hashed_once():
    """Whatever happens to its request while it waits, is preempted and comes back."""
    figure = run(Hashes())["of a block"]
    assert (figure.p50, figure.target) == (1, 1)


# All cases


def test_names():
    """Each case has its own, which says its sizes."""
    names = [case.name for case in CASES]
    assert len(set(names)) == len(names)
    assert {"decode-512-8k", "decode-1024-64k-drafts", "endings-4096-64", "hashes"} <= set(names)


@pytest.mark.parametrize(
    "patterns, names",
    [
        (["hashes"], ["hashes"]),
        (["decode-512-?k"], ["decode-512-1k", "decode-512-8k"]),
        (["hashes", "hash*", "decode-256-1k"], ["decode-256-1k", "hashes"]),
        (["*"], [case.name for case in CASES]),
    ],
)
def test_chosen(patterns, names):
    """By name or pattern, each once, in the order of the list."""
    assert [case.name for case in chosen(patterns)] == names


@pytest.mark.parametrize("pattern", ["decode", "", "DECODE-*", "decode-513-*"])
def test_nothing_is_called_so(pattern):
    """A pattern that fits no case is refused with the names that there are, whatever else was asked for."""
    with pytest.raises(ConfigError, match=r"endings-4096-64"):
        chosen(["hashes", pattern])


# The program


def test_a_figure_a_line(capsys):
    """The program writes what its cases say, and nothing else."""
    program.main(json.dumps({"cases": ["hashes"], "steps": 1}))
    (line,) = capsys.readouterr().out.splitlines()
    assert Figure.read(line).case == "hashes"


def test_figures_come_as_they_are_measured(capsys, monkeypatch):
    """A line is out before the next case begins."""

    class Watched:
        def __init__(self, name):
            self.name = name

        def run(self, effort):
            before.append(capsys.readouterr().out.count("\n"))
            yield Figure(self.name, "x", "ms", 1, 1.0, 1.0, 1.0)

    before = []
    monkeypatch.setattr(program, "chosen", lambda patterns: [Watched("a"), Watched("b")])
    program.main(json.dumps({"cases": ["*"], "steps": 1}))
    assert list(itertools.accumulate(before)) == [0, 1]
