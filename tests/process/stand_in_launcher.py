"""Runs the supervisor over stand-ins: `stand_in_launcher.py '{"executor0": "obey", ...}' '{"port": 0, ...}' [FD]`.

The first argument gives the behaviour of each process, the second fields of Config, the third is --stop-on-eof.
"""

import json
import os
import sys
from pathlib import Path

from fourstroke.common.config import Config
from fourstroke.common.errors import FourstrokeError
from fourstroke.common.types import SUPERVISOR
from fourstroke.ipc.board import board_bytes
from fourstroke.ipc.segment import BOARD
from fourstroke.launch import listener
from fourstroke.launch.cli import exit_status
from fourstroke.launch.console import say
from fourstroke.launch.supervisor import supervise
from fourstroke.launch.topology import ProcessSpec, SegmentSpec, Topology, WireSpec, board_names


def stand_ins(behaviours: dict[str, str]) -> Topology:
    path = os.pathsep.join(filter(None, (str(Path(__file__).parent), os.environ.get("PYTHONPATH"))))
    processes = tuple(
        ProcessSpec(name, name.rstrip("0"), "stand_in", {"PYTHONPATH": path, "STAND_IN": behaviour})
        for name, behaviour in behaviours.items()
    )
    wires = tuple(WireSpec(process.name, SUPERVISOR) for process in processes)
    segments = (SegmentSpec(BOARD, board_bytes(len(board_names(processes)))), SegmentSpec("ring.a.b", 1 << 20))
    return Topology(processes, (*wires, WireSpec(SUPERVISOR, "ingest0")), segments)


def main() -> None:
    behaviours, fields, *fds = (json.loads(argument) for argument in sys.argv[1:])
    try:
        config = Config(model="none", served_model_names=("stand-in",), **fields)
        supervise(config, stand_ins(behaviours), listener.bind(config), *fds)
    except FourstrokeError as error:
        say(f"fourstroke: error: {error}")
        sys.exit(exit_status(error))


main()
