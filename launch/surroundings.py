"""What a server's processes share on this machine: the socket folder and the shared memory segments.

Made before the first process starts, removed after the last has gone. What a killed launcher left behind
is removed by the next one that starts.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from ..ipc.segment import FOLDER, Segment, owner_tag, reclaim
from ..ipc.wire import make_socket_folder
from .topology import Topology


@dataclass(frozen=True, slots=True)
class Surroundings:
    """`owner` marks everything that belongs to this server."""

    owner: str
    folder: Path
    segments: dict[str, Segment]


@contextmanager
def surroundings(topology: Topology) -> Iterator[Surroundings]:
    """Make the folder and the segments of a topology; remove them at the end, however it comes."""
    owner = owner_tag()
    reclaim(FOLDER)
    with ExitStack() as cleanup:
        folder = make_socket_folder(owner)
        cleanup.callback(shutil.rmtree, folder, ignore_errors=True)
        segments = {}
        for spec in topology.segments:
            segments[spec.name] = Segment.create(owner, spec.name, spec.bytes)
            cleanup.callback(segments[spec.name].unlink)
        yield Surroundings(owner, folder, segments)
