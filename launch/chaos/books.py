"""What a running server holds, seen from outside: its board, shared memory, its processes' memory and open files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import psutil

from ...common.types import SUPERVISOR, State
from ...ipc.board import Board
from ...ipc.segment import BOARD, FOLDER, Segment, owned_name, owner_tag

_NOTHING_LEFT = {
    "ingest": ("requests_live", "requests_admitted", "prompt_ring_tokens"),
    "scheduler": (
        "requests_running",
        "requests_waiting",
        "requests_parked",
        "transfers_open",
        "token_ring_tokens",
        "kv_event_queue_depth",
    ),
}
"""Columns that are 0 when nobody asks for anything."""

_RSS_MAY_GROW_BY = 1.25
_RSS_MAY_GROW_BYTES = 32 << 20
"""What allocators keep, beside that share."""


@dataclass(frozen=True, slots=True)
class Life:
    """One process of a name: the `number`-th one."""

    number: int
    pid: int
    ready: bool


@dataclass(frozen=True, slots=True)
class Holdings:
    """`segments` are bytes by the name of a file, the others by that of a process: open files, resident bytes."""

    descriptors: Mapping[str, int]
    rss: Mapping[str, int]
    segments: Mapping[str, int]


class Books:
    """Those of the server that the launcher with this pid has started. `names` are the rows of its board."""

    def __init__(self, pid: int, names: Sequence[str]) -> None:
        self._pid = pid
        self._owner = owner_tag(pid)
        self._board = Board(Segment.attach(self._owner, BOARD).memory, names)
        self.names = tuple(name for name in names if name != SUPERVISOR)

    def life(self, name: str) -> Life:
        row = self._board.row(name)
        return Life(row.life, row["pid"], row.state is State.READY)

    def unrest(self) -> list[str]:
        """What is not as it is in a server that is ready and has nothing to do, in words."""
        return list(self._unrest())

    def _unrest(self) -> Iterator[str]:
        for name in self.names:
            row = self._board.row(name)
            if row.state is not State.READY:
                yield f"{name} is {row.state.name.lower()}"
            for column in _NOTHING_LEFT.get(row.role, ()):
                if row[column]:
                    yield f"{name}: {column} is {row[column]}"
            if row.role == "scheduler" and row["kv_blocks_free"] != row["kv_blocks"]:
                yield f"{name}: {row['kv_blocks_free']} of {row['kv_blocks']} KV blocks are free"
            if row["bad_frames"]:
                yield f"{name}: {row['bad_frames']} bad frames"

    def holdings(self) -> Holdings:
        """What the processes that run now hold."""
        descriptors, rss = {}, {}
        pids = {SUPERVISOR: self._pid} | {name: self.life(name).pid for name in self.names}
        for name, pid in pids.items():
            with suppress(psutil.NoSuchProcess):  # it died just now
                process = psutil.Process(pid)
                descriptors[name], rss[name] = process.num_fds(), process.memory_info().rss
        segments = {path.name: path.stat().st_size for path in FOLDER.glob(f"{owned_name(self._owner)}.*")}
        return Holdings(descriptors, rss, segments)


def leaks(before: Holdings, after: Holdings) -> list[str]:
    """What a server holds afterwards beyond what it held before, in words. New processes may hold less."""
    found = []
    if before.segments != after.segments:
        changed = sorted(set(before.segments.items()) ^ set(after.segments.items()))
        found.append(f"shared memory is not what it was: {changed}")
    for name, count in after.descriptors.items():
        if count > before.descriptors.get(name, 0):
            found.append(f"{name} has {count} open files instead of {before.descriptors.get(name, 0)}")
    for name, size in after.rss.items():
        if size > before.rss.get(name, 0) * _RSS_MAY_GROW_BY + _RSS_MAY_GROW_BYTES:
            found.append(f"{name} holds {size >> 20} MiB instead of {before.rss.get(name, 0) >> 20}")
    return found
