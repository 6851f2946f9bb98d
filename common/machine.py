"""What this process may take: cores, memory and open files, a container's limits counted. And /proc on other processes.

The kernel's own numbers, /proc/meminfo and the affinity mask, do not know of cgroups; a container that
relies on them is killed for memory or starts a thread for each core of its host.
"""

from __future__ import annotations

import math
import os
import resource
from collections.abc import Iterator
from pathlib import Path

_MAX_BACKLOG = 2048
_MIN_CONNECTIONS = 16
_OTHER_FILES = 64
"""Wires, shared memory, logs: what a process opens beside connections, with room to spare."""

_CGROUPS = Path("/sys/fs/cgroup")
_OWN_CGROUP = Path("/proc/self/cgroup")


def usable_cores() -> int:
    """Cores that this process may use, the quota of its cgroup (v2) counted; at least 1."""
    cores = len(os.sched_getaffinity(0))
    for folder in _own_groups(_CGROUPS, _OWN_CGROUP):
        quota, _, period = _content(folder / "cpu.max").partition(" ")
        if quota.isdigit():
            cores = min(cores, math.ceil(int(quota) / int(period)))
    return max(1, cores)


def listen_backlog() -> int:
    """Connections that may wait to be accepted: at most a quarter of the files that may be open.

    They are accepted in one burst, before anybody looks at connection_limit.
    """
    return min(_MAX_BACKLOG, _open_files() // 4)


def connection_limit() -> int:
    """Connections that a server accepts: so many that a burst beyond them leaves files for its other purposes."""
    files = _open_files()
    return max(_MIN_CONNECTIONS, files - files // 4 - _OTHER_FILES)


def _open_files() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft


def process_stat(pid: int) -> list[str] | None:
    """What the kernel says of a process in /proc/PID/stat, from its state on; None if there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return stat.rpartition(")")[2].split()


def cgroup_headroom(root: Path = _CGROUPS, own: Path = _OWN_CGROUP) -> int | None:
    """Bytes below the tightest memory limit of this process's cgroups (v2, or v1 as containers see it).

    `root` is where cgroups are mounted, `own` the file that names this process's. None without a limit.
    File pages that the kernel can drop do not count as used.
    """
    headrooms = [_v2_headroom(folder) for folder in _own_groups(root, own)]
    headrooms.append(_v1_headroom(root / "memory"))
    return min((room for room in headrooms if room is not None), default=None)


def _own_groups(root: Path, own: Path) -> Iterator[Path]:
    """The folders of this process's v2 cgroup and of those it lies in."""
    for line in _content(own).splitlines():
        if line.startswith("0::"):
            folder = root / line[3:].lstrip("/")
            yield folder
            yield from (parent for parent in folder.parents if parent.is_relative_to(root))


def _v2_headroom(folder: Path) -> int | None:
    limit = _content(folder / "memory.max")
    if not limit.isdigit():
        return None
    used = int(_content(folder / "memory.current") or 0)
    return max(0, int(limit) - used + _stat(folder, "inactive_file"))


def _v1_headroom(folder: Path) -> int | None:
    limit = _content(folder / "memory.limit_in_bytes")
    if not limit.isdigit() or int(limit) >= 1 << 60:  # v1 writes "no limit" as a huge number
        return None
    used = int(_content(folder / "memory.usage_in_bytes") or 0)
    return max(0, int(limit) - used + _stat(folder, "total_inactive_file"))


def _stat(folder: Path, name: str) -> int:
    for line in _content(folder / "memory.stat").splitlines():
        key, _, value = line.partition(" ")
        if key == name:
            return int(value)
    return 0


def _content(path: Path) -> str:
    """A small file, or nothing where there is none or it is closed to us."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""
