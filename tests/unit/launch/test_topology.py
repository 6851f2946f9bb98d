"""The topology as data: whatever is configured, its parts fit together."""

import re

import pytest

from fourstroke.common.config import ALIGNMENTS, Config
from fourstroke.common.types import SUPERVISOR
from fourstroke.ipc.ballot import ballot_bytes
from fourstroke.ipc.board import COLUMNS
from fourstroke.ipc.plan import StepShape, slots_for_depth
from fourstroke.ipc.shared_collective import SEGMENT
from fourstroke.launch.topology import STROKES, Topology, assignment, build, picture


def config(**fields: object) -> Config:
    return Config(model="m", served_model_names=("m",), **fields)  # type: ignore[arg-type]


TWO = {"data_parallel_size": 2, "executor": "fake"}
THREE = {"data_parallel_size": 3, "alignment": "coalesce"}


MANY = {"ingest_procs": 3, "output_procs": 2, "data_parallel_size": 2}
ONE_ROW = {"threads": 3, "pipeline_depth": 1, "max_num_seqs": 1}


@pytest.fixture(params=[{}, {"executor": "fake"}, ONE_ROW, TWO, THREE, MANY])
def topology(request: pytest.FixtureRequest) -> Topology:
    return build(config(**request.param), 8)


def names(topology: Topology) -> set[str]:
    return {process.name for process in topology.processes}


def test_golden() -> None:
    """The default server, in the order of starting: the slowest first."""
    default = build(config(), 8)
    assert [(process.name, process.module) for process in default.processes] == [
        ("executor0", "fourstroke.procs.executor.main"),
        ("scheduler0", "fourstroke.procs.scheduler.main"),
        ("output0", "fourstroke.procs.output.main"),
        ("publisher0", "fourstroke.procs.publisher.main"),
        ("ingest0", "fourstroke.procs.ingest.main"),
    ]
    assert [f"{wire.sender} {wire.receiver}" for wire in default.wires] == [
        "ingest0 scheduler0",
        "scheduler0 executor0",
        "executor0 scheduler0",
        "scheduler0 output0",
        "output0 ingest0",
        "scheduler0 publisher0",
        "executor0 supervisor",
        "scheduler0 supervisor",
        "output0 supervisor",
        "publisher0 supervisor",
        "ingest0 supervisor",
        "supervisor ingest0",
    ]


def test_wires_join_processes(topology: Topology) -> None:
    """Both ends of every wire exist, and there is one wire a direction."""
    ends = names(topology) | {SUPERVISOR}
    assert {end for wire in topology.wires for end in (wire.sender, wire.receiver)} <= ends
    assert len(set(topology.wires)) == len(topology.wires)


def test_every_process_is_reached(topology: Topology) -> None:
    """Work that enters at ingest reaches every process, and every process reports to the supervisor."""
    reached = {name for name in names(topology) if name.startswith("ingest")}
    for _ in topology.processes:
        reached |= {wire.receiver for wire in topology.wires if wire.sender in reached}
    assert reached == names(topology) | {SUPERVISOR}
    assert {wire.sender for wire in topology.wires if wire.receiver == SUPERVISOR} == names(topology)


def test_roles_are_known(topology: Topology) -> None:
    """Every role has its place in the order of stopping and its columns on the board."""
    roles = {process.role for process in topology.processes}
    assert roles <= set(STROKES)
    assert roles <= COLUMNS.keys()


def test_segments(topology: Topology) -> None:
    """Segments have different names and hold something."""
    assert len({segment.name for segment in topology.segments}) == len(topology.segments)
    assert all(segment.bytes > 0 for segment in topology.segments)


def test_step_slots_hold_drafts() -> None:
    """The step slots have room for the drafts of every row."""
    sizes = [
        next(one.bytes for one in build(config(num_speculative_tokens=drafts), 8).segments if "steps" in one.name)
        for drafts in (0, 4)
    ]
    shapes = [StepShape(256, 2048, drafts) for drafts in (0, 4)]
    assert sizes == [shape.memory_bytes(slots_for_depth(2)) for shape in shapes]
    assert sizes[0] < sizes[1]


def test_fake_executor() -> None:
    """The fake executor takes the place of the real one and of nothing else."""
    real, fake = build(config(), 8), build(config(executor="fake"), 8)
    assert fake.processes[0].module == "fourstroke.procs.executor.fake"
    assert fake.processes[1:] == real.processes[1:]
    assert fake.wires == real.wires


@pytest.mark.parametrize(("threads", "expected"), [(None, "8"), (3, "3")])
def test_threads(threads: int | None, expected: str) -> None:
    """Only the executor computes with threads: those configured, else one a core."""
    executor, *others = build(config(threads=threads), 8).processes
    assert executor.env["OMP_NUM_THREADS"] == expected
    assert executor.env["GOMP_SPINCOUNT"] == "1000"
    assert "OMP_WAIT_POLICY" not in executor.env
    assert {process.env["OMP_NUM_THREADS"] for process in others} == {"1"}


@pytest.mark.parametrize(
    ("threads", "engines", "expected"), [(None, 2, "4"), (None, 3, "2"), (None, 9, "1"), (3, 2, "3")]
)
def test_engines_divide_the_cores(threads: int | None, engines: int, expected: str) -> None:
    """Each executor has its share of the cores and at least one, or the threads that are configured."""
    topology = build(config(threads=threads, data_parallel_size=engines), 8)
    executors = [process for process in topology.processes if process.role == "executor"]
    assert [process.env["OMP_NUM_THREADS"] for process in executors] == [expected] * engines


def test_engines() -> None:
    """An engine is a scheduler with an executor and a publisher of its own; ingest and output are there once."""
    topology = build(config(data_parallel_size=3), 8)
    assert [process.name for process in topology.processes] == [
        "executor0", "executor1", "executor2", "scheduler0", "scheduler1", "scheduler2",
        "output0", "publisher0", "publisher1", "publisher2", "ingest0",
    ]  # fmt: skip
    for number in range(3):
        scheduler = f"scheduler{number}"
        peers = {f"executor{number}", "output0", f"publisher{number}", SUPERVISOR}
        assert {wire.receiver for wire in topology.wires if wire.sender == scheduler} == peers
        heard = {f"executor{number}", "ingest0"}
        assert {wire.sender for wire in topology.wires if wire.receiver == scheduler} == heard
    names = [segment.name for segment in topology.segments]
    for number in range(3):
        assert {f"ring.ingest0.scheduler{number}", f"ring.scheduler{number}.output0"} <= set(names)
        assert f"steps.scheduler{number}" in names


def test_several_ingests_and_outputs() -> None:
    """Each has a wire and a ring of its own to or from every engine; ingests have wires among them, too."""
    topology = build(config(**MANY), 8)
    wires = [f"{wire.sender} {wire.receiver}" for wire in topology.wires]
    segments = [segment.name for segment in topology.segments]
    for scheduler in ("scheduler0", "scheduler1"):
        assert {f"ring.ingest{ingest}.{scheduler}" for ingest in range(3)} <= set(segments)
        assert {f"ring.{scheduler}.output{output}" for output in range(2)} <= set(segments)
        assert {f"ingest{ingest} {scheduler}" for ingest in range(3)} <= set(wires)
        assert {f"{scheduler} output{output}" for output in range(2)} <= set(wires)
    assert {f"output{output} ingest{ingest}" for output in range(2) for ingest in range(3)} <= set(wires)
    assert {f"ingest{one} ingest{other}" for one in range(3) for other in range(3) if one != other} <= set(wires)
    assert {f"{SUPERVISOR} ingest{ingest}" for ingest in range(3)} <= set(wires)
    assert "3 ingests, all on one port" in picture(topology)


@pytest.mark.parametrize("alignment", ALIGNMENTS)
@pytest.mark.parametrize("engines", [1, 2])
def test_ballot(alignment: str, engines: int) -> None:
    """There is memory to agree in if there are engines that have to."""
    topology = build(config(alignment=alignment, data_parallel_size=engines), 8)
    sizes = [segment.bytes for segment in topology.segments if segment.name == SEGMENT]
    assert sizes == ([ballot_bytes(2)] if alignment != "off" and engines == 2 else [])


def test_assignments(topology: Topology) -> None:
    """What processes are told about their wires is what the topology says, from both ends."""
    told = {
        spec.name: assignment(spec, topology, config(), supervisor_pid=1, socket_folder="/s", owner="o")
        for spec in topology.processes
    }
    assert {(name, peer) for name, one in told.items() for peer in one.sends_to} == {
        (wire.sender, wire.receiver) for wire in topology.wires if wire.sender != SUPERVISOR
    }
    assert {(peer, name) for name, one in told.items() for peer in one.hears_from} == {
        (wire.sender, wire.receiver) for wire in topology.wires if wire.receiver != SUPERVISOR
    }
    assert {one.board for one in told.values()} == {topology.board}
    assert all(f"{one.role}{one.index}" == one.name for one in told.values())


def test_picture_shows_all(topology: Topology) -> None:
    """The printed topology names every process with its module, every wire and every segment."""
    shown = picture(topology)
    for process in topology.processes:
        assert re.search(rf"^  {process.name} +{re.escape(process.module)}\b", shown, re.MULTILINE)
    for wire in topology.wires:
        assert re.search(rf"^  {wire.sender} +-> +{wire.receiver}$", shown, re.MULTILINE)
    for segment in topology.segments:
        assert re.search(rf"^  {re.escape(segment.name)} +{segment.bytes:,} bytes$", shown, re.MULTILINE)
    engines = sum(process.role == "scheduler" for process in topology.processes)
    assert (f"{engines} engines, each" in shown) == (engines > 1)
