"""How one engine's figures stand to those of the others, when all had the same loads in turn, several times."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich import box
from rich.table import Table

from .report import Run
from .summary import Summary

_FIGURES: dict[str, Callable[[Summary], float]] = {
    "output tokens/s": lambda load: load.output_tokens_s,
    "TTFT p50": lambda load: load.ttft.p50,
    "between tokens p50": lambda load: load.itl.p50,
    "latency p50": lambda load: load.latency.p50,
}
_MORE_IS_BETTER = {"output tokens/s"}


@dataclass(frozen=True, slots=True)
class Ratio:
    """A figure of engine `ours` over that of `theirs`, in the same repetition; of times the other way round.

    So above 1 ours is better. The median of all repetitions, the least and the most; `value` is our median figure.
    """

    ours: str
    theirs: str
    load: str
    figure: str
    value: float
    median: float
    least: float
    most: float


def ratios(runs: Sequence[Run]) -> list[Ratio]:
    """All ratios of the first engine to each other one. Runs of one name are its repetitions, in order."""
    by_name: dict[str, list[Run]] = {}
    for run in runs:
        by_name.setdefault(run.name, []).append(run)
    ours, *others = by_name
    return [
        _ratio(by_name[ours], by_name[theirs], index, figure)
        for theirs in others
        for index in range(len(by_name[ours][0].loads))
        for figure in _FIGURES
    ]


def _ratio(ours: Sequence[Run], theirs: Sequence[Run], index: int, figure: str) -> Ratio:
    values = [[_FIGURES[figure](run.loads[index]) for run in runs] for runs in (ours, theirs)]
    pairs = list(zip(*values, strict=True))
    quotients = [_quotient(*pair) if figure in _MORE_IS_BETTER else _quotient(*pair[::-1]) for pair in pairs]
    return Ratio(
        ours=ours[0].name,
        theirs=theirs[0].name,
        load=ours[0].loads[index].name,
        figure=figure,
        value=statistics.median(values[0]),
        median=statistics.median(quotients),
        least=min(quotients),
        most=max(quotients),
    )


def _quotient(above: float, below: float) -> float:
    return above / below if below else float("inf")


def as_table(found: Sequence[Ratio]) -> Table:
    """A row for each load and figure, a column for each of the others."""
    others = list(dict.fromkeys(ratio.theirs for ratio in found))
    table = Table("load", "figure", title="above 1: better than", title_justify="left", box=box.SIMPLE_HEAD)
    for heading in (found[0].ours, *others):
        table.add_column(heading, justify="right")
    rows: dict[tuple[str, str], list[Ratio]] = {}
    for ratio in found:
        rows.setdefault((ratio.load, ratio.figure), []).append(ratio)
    for (load, figure), of_row in rows.items():
        cells = (f"{ratio.median:.2f} ({ratio.least:.2f}-{ratio.most:.2f})" for ratio in of_row)
        table.add_row(load, figure, f"{of_row[0].value:,.1f}", *cells)
    return table
