"""Plots of runs: output tokens a second and time to first token, against what was asked at a time."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ...common.errors import ConfigError
from .clients import require
from .report import Run
from .summary import Summary

_FORMATS = (".svg", ".png")
_SIZE_INCHES = (10.0, 3.8)


def check_plot(path: Path | None) -> None:
    """Raise ConfigError if a plot could not be written there, before anything is measured for it."""
    if path is None:
        return
    if path.suffix not in _FORMATS:
        raise ConfigError(f"--plot must end in {' or '.join(_FORMATS)}; got {path}")
    require("matplotlib")


def plot_runs(runs: Sequence[Run], path: Path) -> None:
    """Draw each run as a line through its loads: a row of axes for closed loops, one for open loops, as there are any.

    Runs of the same name are repetitions: their line goes through the median, and a band shows the least and the most.
    """
    from matplotlib.figure import Figure  # here: it takes half a second to import, and few ask for a plot
    from matplotlib.ticker import LogLocator, NullFormatter

    kinds: list[tuple[str, Callable[[Summary], float]]] = [
        ("requests at a time", lambda load: load.concurrency),
        ("requests a second", lambda load: load.rate),
    ]
    kinds = [kind for kind in kinds if any(kind[1](load) for run in runs for load in run.loads)]
    figure = Figure(figsize=(_SIZE_INCHES[0], _SIZE_INCHES[1] * len(kinds)), layout="constrained")
    axes = figure.subplots(len(kinds), 2, squeeze=False)
    for (label, at), (rate, ttft) in zip(kinds, axes, strict=True):
        _draw(rate, runs, at, lambda load: load.output_tokens_s)
        _draw(ttft, runs, at, lambda load: load.ttft.p50)
        rate.set(title="output tokens a second", xlabel=label, ylim=(0, None))
        ttft.set(title="time to first token, p50, ms", xlabel=label, yscale="log")
        ttft.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        ttft.yaxis.set_major_formatter("{x:g}")
        ttft.yaxis.set_minor_formatter(NullFormatter())
        rate.legend(frameon=False)
    figure.suptitle(" · ".join(dict.fromkeys(run.asked for run in runs)), fontsize="medium")
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def _draw(axes: Any, runs: Sequence[Run], at: Callable[[Summary], float], value: Callable[[Summary], float]) -> None:
    """One line for each name."""
    ticks = sorted({at(load) for run in runs for load in run.loads if at(load)})
    for name in dict.fromkeys(run.name for run in runs):
        points: dict[float, list[float]] = {}
        for load in (load for run in runs if run.name == name for load in run.loads if at(load)):
            points.setdefault(at(load), []).append(value(load))
        places = sorted(points)
        spread = [points[place] for place in places]
        (line,) = axes.plot(places, list(map(statistics.median, spread)), marker="o", label=name)
        axes.fill_between(
            places,
            list(map(min, spread)),
            list(map(max, spread)),
            color=line.get_color(),
            alpha=0.2,
        )
    axes.set_xscale("log", base=2)
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.grid(alpha=0.3)
