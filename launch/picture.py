"""A topology as text, for `fourstroke serve --show-topology`."""

from __future__ import annotations

from collections.abc import Sequence

from .topology import Topology

_RING = """\
            +--------+  Submit, Abort  +-----------+  StepPlan  +----------+
  HTTP ---> | ingest | --------------> | scheduler | ---------> | executor |
       <--- |        |                 |           | <--------- |          |
            +--------+                 +-----------+  StepDone  +----------+
                 ^                      |         |
                 | Text   +--------+    | Emit    | KvBatch   +-----------+
                 +------- | output | <--+         +---------> | publisher | ---> subscribers
                          +--------+                          +-----------+
"""


def picture(topology: Topology) -> str:
    """The flow of work, then every process, wire and piece of shared memory."""
    processes = [
        (spec.name, spec.module, " ".join(f"{name}={value}" for name, value in sorted(spec.env.items())))
        for spec in topology.processes
    ]
    wires = [(wire.sender, "->", wire.receiver) for wire in topology.wires]
    segments = [(segment.name, f"{segment.bytes:>12,} bytes") for segment in topology.segments]
    return "\n".join(
        [
            _RING,
            *_table("processes, in the order of starting", processes),
            *_table("wires", wires),
            *_table("shared memory", segments),
        ]
    ).rstrip()


def _table(title: str, rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    return [title, *lines, ""]
