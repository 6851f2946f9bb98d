"""What a server's processes share on this machine: the socket folder and the shared memory segments.

Made before the first process starts, removed after the last has gone. What a killed launcher left behind
is removed by the next one that starts.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from ..common.errors import ResourceError
from ..ipc.segment import FOLDER, Segment, owned_name, owner_tag, reclaim
from ..ipc.wire import MAX_PATH_BYTES
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


def make_socket_folder(owner: str) -> Path:
    """A new folder for the sockets of one server, closed to other users; those of dead servers are removed.

    Not under TMPDIR, which may be too long for a socket's path.
    """
    parent = Path(os.environ.get("XDG_RUNTIME_DIR", "/tmp"))
    if not os.access(parent, os.W_OK | os.X_OK) or len(os.fsencode(parent)) > MAX_PATH_BYTES // 2:
        parent = Path("/tmp")
    reclaim(parent)
    folder = parent / owned_name(owner)
    try:
        folder.mkdir(mode=0o700)
    except OSError as error:
        raise ResourceError(f"cannot make the socket folder {folder}: {error.strerror}") from None
    return folder
