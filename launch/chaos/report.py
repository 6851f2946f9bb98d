"""What a run has found: a table by role, and everything as JSON."""

from __future__ import annotations

import dataclasses
import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.table import Table

from ...common.types import role_of
from ..bench.figures import number
from ..bench.record import Record
from .blows import Recovery
from .load import Heard
from .soak import Samples, Trend


@dataclass(frozen=True, slots=True)
class Found:
    """`wrong` is what is not as it must be, in words. `seconds` is how long the load ran."""

    seed: int
    seconds: float
    heard: Sequence[Heard]
    recoveries: Sequence[Recovery]
    samples: Samples
    wrong: Sequence[str]


def longest_pause_s(recovery: Recovery, records: Sequence[Record]) -> float:
    """The longest time without an event that a stream saw which was open between a blow and its end; 0 if none was."""
    until_s = float("inf") if recovery.ready_s is None else recovery.ready_s
    return max(
        (
            later - earlier
            for record in records
            for earlier, later in zip(record.chunks_s, record.chunks_s[1:], strict=False)
            if later >= recovery.struck_s and earlier <= until_s
        ),
        default=0.0,
    )


def as_table(found: Found) -> Table:
    """A row for each role and kind of blow; times in seconds."""
    table = Table("role", "blow", box=box.SIMPLE_HEAD)
    for heading in ("times", "ready again, median", "longest", "pause of a stream, median", "longest"):
        table.add_column(heading, justify="right")
    groups: dict[tuple[str, str], list[Recovery]] = {}
    for one in sorted(found.recoveries, key=lambda one: (role_of(one.blow.name), one.blow.signal)):
        groups.setdefault((role_of(one.blow.name), one.blow.signal.name), []).append(one)
    records = [heard.record for heard in found.heard]
    for (role, blow), some in groups.items():
        took = [one.took_s for one in some if one.took_s is not None]
        pauses = [longest_pause_s(one, records) for one in some]
        table.add_row(role, blow, str(len(some)), *_spread(took), *_spread(pauses))
    return table


def _spread(times_s: Sequence[float]) -> tuple[str, str]:
    return (number(statistics.median(times_s)), number(max(times_s))) if times_s else ("never", "never")


def trends_table(samples: Samples) -> Table:
    """A row for each process: what it holds, and how that grows."""
    table = Table("process", box=box.SIMPLE_HEAD)
    for heading in ("RSS at first, MiB", "at last", "MiB an hour", "open files", "at last"):
        table.add_column(heading, justify="right")
    descriptors = samples.descriptors
    for name, one in samples.rss.items():
        files = descriptors[name]
        sizes = (f"{size / 2**20:.1f}" for size in (one.first, one.last, one.an_hour))
        table.add_row(name, *sizes, f"{files.first:.0f}", f"{files.last:.0f}")
    for one in samples.shared_memory.values():
        table.add_row("/dev/shm", *(f"{size / 2**20:.1f}" for size in (one.first, one.last, one.an_hour)), "", "")
    return table


def as_json(found: Found) -> str:
    records = [heard.record for heard in found.heard]
    return (
        json.dumps(
            {
                "seed": found.seed,
                "seconds": found.seconds,
                "requests": len(found.heard),
                "asked_again": sum(heard.tries - 1 for heard in found.heard),
                "wrong": list(found.wrong),
                "blows": [_fields(one, records) for one in found.recoveries],
                "rss_bytes": _trends(found.samples.rss),
                "open_files": _trends(found.samples.descriptors),
                "shared_memory_bytes": _trends(found.samples.shared_memory),
            },
            indent=1,
        )
        + "\n"
    )


def _fields(recovery: Recovery, records: Sequence[Record]) -> dict[str, Any]:
    return {
        "process": recovery.blow.name,
        "signal": recovery.blow.signal.name,
        "at_s": recovery.blow.at_s,
        "ready_again_s": recovery.took_s,
        "longest_pause_s": longest_pause_s(recovery, records),
    }


def _trends(trends: dict[str, Trend]) -> dict[str, Any]:
    return {name: dataclasses.asdict(one) for name, one in trends.items()}
