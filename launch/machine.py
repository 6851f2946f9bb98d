"""What the launcher asks of the operating system before it starts anything."""

import math
import os
import resource
from pathlib import Path

_CPU_MAX = Path("/sys/fs/cgroup/cpu.max")


def usable_cores() -> int:
    """Cores that this server may keep busy: its affinity mask, cut to the container's quota (cgroup v2)."""
    cores = len(os.sched_getaffinity(0))
    try:
        quota, period = _CPU_MAX.read_text().split()
    except (OSError, ValueError):
        return cores
    if quota == "max":
        return cores
    return max(1, min(cores, math.floor(int(quota) / int(period))))


def raise_file_limit() -> None:
    """Let this process and its children open as many files as the hard limit allows: one per client."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
