"""Named shared memory: files in /dev/shm that belong to one server and die with it.

A name carries its owner, the supervisor's pid and start time, so that whatever a killed server left
behind is found and removed by the next one. The owner also holds a lock on each of its segments: in
another container, which may share /dev/shm, its pid means nothing. Space is reserved when a segment is made: a
full /dev/shm is an error at the start, not a SIGBUS in the middle of a request.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import re
import shutil
from pathlib import Path

from ..common.errors import ResourceError
from ..common.machine import process_stat

FOLDER = Path("/dev/shm")
BOARD = "board"
"""The segment of the board."""

_PREFIX = "fourstroke"
_OWNED = re.compile(rf"{_PREFIX}-(\d+)-(\d+)(\..*)?")


def ring_name(writer: str, reader: str) -> str:
    """The segment of the token ring from one process to another."""
    return f"ring.{writer}.{reader}"


def steps_name(scheduler: str) -> str:
    """The segment of the step slots that a scheduler shares with its executor."""
    return f"steps.{scheduler}"


def owner_tag(pid: int | None = None) -> str:
    """What marks the belongings of a process: its pid and its start time, since pids come back."""
    pid = os.getpid() if pid is None else pid
    return f"{pid}-{_start_time(pid)}"


def owned_name(owner: str) -> str:
    """The name, or the beginning of the name, of what an owner owns."""
    return f"{_PREFIX}-{owner}"


def _start_time(pid: int) -> int | None:
    """Clock ticks from boot to the start of a process; None if there is no such process."""
    stat = process_stat(pid)
    return None if stat is None else int(stat[19])


def reclaim(folder: Path) -> int:
    """Remove from a folder what belongs to owners that are dead; return how many entries went."""
    removed = 0
    for entry in folder.iterdir():
        match = _OWNED.fullmatch(entry.name)
        if match is None or _is_alive(int(match[1]), int(match[2])):
            continue
        try:
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()
        except OSError:
            continue  # another server reclaims it at this moment, or it is another user's
        removed += 1
    return removed


def _is_alive(pid: int, start_time: int) -> bool:
    """Whether an owner lives, here or in another pid namespace."""
    return _start_time(pid) == start_time or _is_locked(_path(f"{pid}-{start_time}", BOARD))


def _is_locked(path: Path) -> bool:
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    except OSError:
        return True  # another user's: not ours to judge
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


class Segment:
    """A piece of shared memory, mapped read-write. `memory` is a writable buffer over all of it."""

    def __init__(self, path: Path, mapped: mmap.mmap, lock: int | None = None) -> None:
        self._path = path
        self._mapped = mapped
        self._lock = lock
        self.memory = memoryview(mapped)

    @classmethod
    def create(cls, owner: str, name: str, size: int) -> Segment:
        """Make a segment of `size` bytes, zeroed. Raises ResourceError if there is no room for it."""
        path = _path(owner, name)
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ResourceError(f"cannot make shared memory in {FOLDER}: {error.strerror}") from None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            os.posix_fallocate(fd, 0, size)
            return cls(path, mmap.mmap(fd, size), fd)
        except OSError as error:
            path.unlink()
            os.close(fd)
            if error.errno not in (errno.ENOSPC, errno.ENOMEM):
                raise ResourceError(f"cannot make {size:,} bytes of shared memory: {error.strerror}") from None
            raise ResourceError(
                f"{FOLDER} has no room for {size / 2**20:.1f} MiB of shared memory ({name}): "
                f"make it larger (docker run --shm-size=1g), or lower --max-num-batched-tokens"
            ) from None

    @classmethod
    def attach(cls, owner: str, name: str) -> Segment:
        """Map a segment that its owner has made. Raises ResourceError if it is gone."""
        path = _path(owner, name)
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            raise ResourceError(f"the shared memory {path} is gone; is the server stopping?") from None
        try:
            return cls(path, mmap.mmap(fd, os.fstat(fd).st_size))
        finally:
            os.close(fd)

    def unlink(self) -> None:
        """Remove the name. The memory stays until the last process that maps it has gone."""
        self._path.unlink(missing_ok=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _path(owner: str, name: str) -> Path:
    return FOLDER / f"{owned_name(owner)}.{name}"
