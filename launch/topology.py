"""Which processes, wires and shared memory a server is made of. Pure: a Config in, a description out.

The command line prints it, the supervisor builds it, tests make others. Processes stand in the order in
which they are started: the executor first, because loading a model takes longest. Their modules are
dotted strings: the launcher never imports what they import.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ..common.config import Assignment, Config
from ..common.types import SUPERVISOR
from ..ipc.ballot import ballot_bytes
from ..ipc.board import board_bytes
from ..ipc.plan import StepShape, slots_for_depth
from ..ipc.ring import ring_bytes
from ..ipc.segment import BOARD, ring_name, steps_name
from ..ipc.shared_collective import SEGMENT

STROKES = ("ingest", "scheduler", "executor", "output", "publisher")
"""Roles in the order in which work flows through them, which is the order of stopping."""

_PER_ENGINE = ("executor", "scheduler", "publisher")
"""The roles that each engine has for itself; the others are there once."""

PROMPT_RING_TOKENS = 1 << 21
TOKEN_RING_TOKENS = 1 << 18

_EXECUTORS = {"model": "fourstroke.procs.executor.main", "fake": "fourstroke.procs.executor.fake"}
_FLOW = (
    ("ingest", "scheduler"),
    ("scheduler", "executor"),
    ("executor", "scheduler"),
    ("scheduler", "output"),
    ("output", "ingest"),
    ("scheduler", "publisher"),
)
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


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """One process: what runs, and what is set in its environment beside the launcher's own."""

    name: str
    role: str
    module: str
    env: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WireSpec:
    """A one-way wire between two processes."""

    sender: str
    receiver: str


@dataclass(frozen=True, slots=True)
class SegmentSpec:
    """A piece of shared memory."""

    name: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Topology:
    """A whole server."""

    processes: tuple[ProcessSpec, ...]
    wires: tuple[WireSpec, ...]
    segments: tuple[SegmentSpec, ...]

    @property
    def board(self) -> tuple[str, ...]:
        """Who has a row on the board, in the order of the rows."""
        return board_names(self.processes)


def build(config: Config, cores: int) -> Topology:
    """The server that a configuration asks for, on a machine with so many cores to use."""
    engines = range(config.data_parallel_size)
    executor_env = _executor_env(config.threads_of_engine(cores))
    processes = (
        *(
            ProcessSpec(f"executor{engine}", "executor", _EXECUTORS[config.executor], executor_env)
            for engine in engines
        ),
        *(
            ProcessSpec(name, role, f"fourstroke.procs.{role}.main", _SINGLE_THREADED)
            for role in ("scheduler", "output", "publisher", "ingest")
            for name in dict.fromkeys(_name(role, engine) for engine in engines)
        ),
    )
    flow = dict.fromkeys(
        WireSpec(_name(sender, engine), _name(receiver, engine)) for engine in engines for sender, receiver in _FLOW
    )
    reports = [WireSpec(process.name, SUPERVISOR) for process in processes]
    return Topology(processes, (*flow, *reports, WireSpec(SUPERVISOR, "ingest0")), _segments(config, processes))


def _name(role: str, engine: int) -> str:
    """The process that has a role for an engine."""
    return f"{role}{engine if role in _PER_ENGINE else 0}"


_SINGLE_THREADED = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}


def _executor_env(threads: int) -> dict[str, str]:
    """One OpenMP team, whose idle threads spin for a while before they sleep.

    How long was measured with the default model on two cores, in tokens/s of one stream and of eight: passive 19 and
    96, 1,000 turns 21 and 123, 10,000 24 and 94, 100,000 31 and 130, 1,000,000 28 and 136; with 32 streams there was
    no difference. Where another program keeps one of the two cores busy it is the other way round: one stream in
    float32 gets 2 with 100,000 turns, 7 with 10,000, 13 with 1,000 and 15 passive, since a thread spins on the core
    that it waits for.
    """
    return {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads), "GOMP_SPINCOUNT": "1000"}


def _segments(config: Config, processes: tuple[ProcessSpec, ...]) -> tuple[SegmentSpec, ...]:
    steps = StepShape(config.max_num_seqs, config.max_num_batched_tokens, config.num_speculative_tokens)
    segments = [SegmentSpec(BOARD, board_bytes(len(board_names(processes))))]
    for scheduler in (process.name for process in processes if process.role == "scheduler"):
        segments += [
            SegmentSpec(ring_name("ingest0", scheduler), ring_bytes(PROMPT_RING_TOKENS)),
            SegmentSpec(ring_name(scheduler, "output0"), ring_bytes(_token_ring(config))),
            SegmentSpec(steps_name(scheduler), steps.memory_bytes(slots_for_depth(config.pipeline_depth))),
        ]
    if config.aligned:
        segments.append(SegmentSpec(SEGMENT, ballot_bytes(config.data_parallel_size)))
    return tuple(segments)


def _token_ring(config: Config) -> int:
    """The tokens of the ring to output: what a step can sample must fit, whatever it is."""
    return max(TOKEN_RING_TOKENS, 2 * config.max_num_seqs * (1 + config.num_speculative_tokens))


def board_names(processes: tuple[ProcessSpec, ...]) -> tuple[str, ...]:
    return (*(process.name for process in processes), SUPERVISOR)


def assignment(
    spec: ProcessSpec, topology: Topology, config: Config, *, supervisor_pid: int, socket_folder: str, owner: str
) -> Assignment:
    """What one process of a topology is told when it starts."""
    return Assignment(
        name=spec.name,
        role=spec.role,
        index=int(spec.name.removeprefix(spec.role)),
        supervisor_pid=supervisor_pid,
        socket_folder=socket_folder,
        owner=owner,
        board=topology.board,
        sends_to=tuple(wire.receiver for wire in topology.wires if wire.sender == spec.name),
        hears_from=tuple(wire.sender for wire in topology.wires if wire.receiver == spec.name),
        config=config,
    )


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
            *_engines(topology),
            *_table("processes, in the order of starting", processes),
            *_table("wires", wires),
            *_table("shared memory", segments),
        ]
    ).rstrip()


def _engines(topology: Topology) -> list[str]:
    """What the drawing does not show."""
    engines = sum(process.role == "scheduler" for process in topology.processes)
    if engines == 1:
        return []
    return [
        f"{engines} engines, each a scheduler with its executor and its publisher, behind one ingest and output",
        "",
    ]


def _table(title: str, rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    return [title, *lines, ""]
