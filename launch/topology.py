"""Which processes, wires and shared memory a server is made of. Pure: a Config in, a description out.

The command line prints it, the supervisor builds it, tests make others. Processes stand in the order in
which they are started: the executor first, because loading a model takes longest. Their modules are
dotted strings: the launcher never imports what they import.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..common.config import Assignment, Config
from ..common.types import SUPERVISOR, number_of
from ..ipc.ballot import ballot_bytes
from ..ipc.board import board_bytes
from ..ipc.loads import LOADS, loads_bytes
from ..ipc.plan import StepShape, slots_for_depth
from ..ipc.ring import ring_bytes
from ..ipc.segment import BOARD, ring_name, steps_name
from ..ipc.shared_collective import SEGMENT

STROKES = ("ingest", "scheduler", "executor", "output", "publisher")
"""Roles in the order in which work flows through them, which is the order of stopping."""

_PER_ENGINE = ("executor", "scheduler", "publisher")
"""The roles that each engine has for itself; the processes of the others serve all engines."""

_OTHER_FILES = 64
"""Files that have nothing to do with how many processes there are, with room to spare."""

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

    @property
    def files(self) -> int:
        """Open files that suffice for each of its processes, and for the launcher: two for a segment, up to seven for a
        process; without connections.
        """
        return _OTHER_FILES + 2 * len(self.segments) + 7 * len(self.processes)


def build(config: Config, cores: int) -> Topology:
    """The server that a configuration asks for, on a machine with so many cores to use."""
    executor_env = _executor_env(config.threads_of_engine(cores))
    processes = (
        *(
            ProcessSpec(name, "executor", _EXECUTORS[config.executor], executor_env)
            for name in _names("executor", config)
        ),
        *(
            ProcessSpec(name, role, f"fourstroke.procs.{role}.main", _SINGLE_THREADED)
            for role in ("scheduler", "output", "publisher", "ingest")
            for name in _names(role, config)
        ),
    )
    return Topology(processes, _wires(config, processes), _segments(config, processes))


def _names(role: str, config: Config) -> list[str]:
    """The processes of a role."""
    counts = {"ingest": config.ingest_procs, "output": config.output_procs}
    return [f"{role}{number}" for number in range(counts.get(role, config.data_parallel_size))]


def _serving(role: str, engine: int, config: Config) -> list[str]:
    """The processes of a role that an engine works with: its own one, or all."""
    return [f"{role}{engine}"] if role in _PER_ENGINE else _names(role, config)


def _wires(config: Config, processes: tuple[ProcessSpec, ...]) -> tuple[WireSpec, ...]:
    flow = [
        WireSpec(sender, receiver)
        for engine in range(config.data_parallel_size)
        for sending, receiving in _FLOW
        for sender in _serving(sending, engine, config)
        for receiver in _serving(receiving, engine, config)
    ]
    ingests = _names("ingest", config)
    siblings = [WireSpec(one, other) for one in ingests for other in ingests if one != other]
    reports = [WireSpec(process.name, SUPERVISOR) for process in processes]
    orders = [WireSpec(SUPERVISOR, ingest) for ingest in ingests]
    return tuple(dict.fromkeys([*flow, *siblings, *reports, *orders]))


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
    prompts, tokens = ring_bytes(PROMPT_RING_TOKENS), ring_bytes(_token_ring(config))
    segments = [
        SegmentSpec(BOARD, board_bytes(len(board_names(processes)))),
        SegmentSpec(LOADS, loads_bytes(config.ingest_procs, config.data_parallel_size)),
    ]
    for scheduler in _names("scheduler", config):
        segments += [
            *(SegmentSpec(ring_name(ingest, scheduler), prompts) for ingest in _names("ingest", config)),
            *(SegmentSpec(ring_name(scheduler, output), tokens) for output in _names("output", config)),
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
    spec: ProcessSpec,
    topology: Topology,
    config: Config,
    *,
    supervisor_pid: int,
    socket_folder: str,
    owner: str,
    life: int = 0,
) -> Assignment:
    """What one process of a topology is told when it starts."""
    return Assignment(
        name=spec.name,
        role=spec.role,
        index=number_of(spec.name),
        supervisor_pid=supervisor_pid,
        socket_folder=socket_folder,
        owner=owner,
        board=topology.board,
        sends_to=tuple(wire.receiver for wire in topology.wires if wire.sender == spec.name),
        hears_from=tuple(wire.sender for wire in topology.wires if wire.receiver == spec.name),
        config=config,
        life=life,
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
            *_several(topology),
            *_table("processes, in the order of starting", processes),
            *_table("wires", wires),
            *_table("shared memory", segments),
        ]
    ).rstrip()


def _several(topology: Topology) -> list[str]:
    """What the drawing does not show."""
    counts = Counter(process.role for process in topology.processes)
    counts["engine"] = counts["scheduler"]
    lines = [
        f"{counts[role]} {role}s, {what}"
        for role, what in (
            ("engine", "each a scheduler with its executor and its publisher"),
            ("ingest", "all on one port, each with a wire and a ring to every scheduler"),
            ("output", "each request has one of them, by its id"),
        )
        if counts[role] > 1
    ]
    return [*lines, ""] if lines else []


def _table(title: str, rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    return [title, *lines, ""]
