"""How much memory the executor may take."""

from __future__ import annotations

import psutil

from ...common.machine import cgroup_headroom


def available_memory() -> int:
    """Bytes that this process can take without being killed or swapping, a container's limit counted."""
    available = int(psutil.virtual_memory().available)
    headroom = cgroup_headroom()
    return available if headroom is None else min(available, headroom)
