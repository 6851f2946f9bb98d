"""What a hundred processes that died, one after the other, leave behind in the launcher: nothing."""

import signal
import threading
from pathlib import Path

import psutil

from fourstroke.common.config import Config
from fourstroke.common.types import SUPERVISOR
from fourstroke.ipc.board import board_bytes
from fourstroke.ipc.messages import Drain
from fourstroke.ipc.segment import BOARD
from fourstroke.launch import listener
from fourstroke.launch.child import Child
from fourstroke.launch.crew import Crew
from fourstroke.launch.event_loop import EventLoop
from fourstroke.launch.surroundings import surroundings
from fourstroke.launch.topology import ProcessSpec, SegmentSpec, Topology, WireSpec

SPEC = ProcessSpec("ingest0", "ingest", "stand_in_dead", {"PYTHONPATH": str(Path(__file__).parent)})
TOPOLOGY = Topology(
    (SPEC,),
    (WireSpec("ingest0", SUPERVISOR), WireSpec(SUPERVISOR, "ingest0")),
    (SegmentSpec(BOARD, board_bytes(2)),),
)


def test_a_hundred_lives() -> None:
    """Descriptors, threads, files and what waits to be sent are after a hundred deaths what they were after one."""
    config = Config(model="none", served_model_names=("none",), port=0)
    listening, loop, dead = listener.bind(config), EventLoop(), list[Child]()
    with surroundings(TOPOLOGY) as made:
        crew = Crew(config, TOPOLOGY, listening, made, loop, lambda _child: None, dead.append)
        held = []
        for lives in range(100):
            crew.start(SPEC)
            crew.order("ingest0", Drain())
            assert loop.until(lambda lives=lives: len(dead) > lives, 60)
            held.append(
                (
                    psutil.Process().num_fds(),
                    threading.active_count(),
                    sorted(path.name for path in made.folder.iterdir()),
                )
            )
        crew.close()
    listening.close()
    assert {child.status for child in dead} == {-signal.SIGKILL}
    assert held[-1] == held[0]
