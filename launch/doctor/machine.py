"""What a machine has, as far as it can be told without torch. Whether that is good, checks.py decides."""

from __future__ import annotations

import enum
import os
import platform
import resource
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from ... import __version__
from ...common.config import Config
from ...common.devices import VARIABLES
from ...common.machine import cgroup_headroom, usable_cores
from ...ipc.segment import FOLDER
from ..model_source import default_model_file, is_default_model
from ..topology import build

_KFD = Path("/dev/kfd")
_DRI = Path("/dev/dri")
_KFD_NODES = Path("/sys/class/kfd/kfd/topology/nodes")
_ROCM_VERSION = Path("/opt/rocm/.info/version")


class Node(enum.Enum):
    """A device file, or several that serve the same purpose: none, none that this user may open, or one at least."""

    ABSENT = "absent"
    CLOSED = "closed"
    OPEN = "open"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCache:
    """Where the default model lies, or will lie; bytes."""

    folder: Path
    stored: bool
    writable: bool
    free: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What was found. Sizes are bytes; limits of a container are counted.

    `features` are the processor's flags as Linux names them. `shm` is the size of /dev/shm, `shm_needed` what a server
    with default flags puts there. `open_files` is the hard limit. `cards` are those that the AMD driver knows of, even
    if a container hides them; `variables` are those of the environment that choose among devices.
    """

    version: str
    python: str
    system: str
    release: str
    architecture: str
    processor: str
    features: frozenset[str]
    cores: int
    cores_online: int
    memory: int
    shm: int
    shm_free: int
    shm_needed: int
    open_files: int
    models: ModelCache
    cards: int
    kfd: Node
    render: Node
    rocm: str | None
    variables: Mapping[str, str]


def look() -> Machine:
    """This machine."""
    processor, features = read_cpuinfo(_content(Path("/proc/cpuinfo")))
    shm, shm_free = _room(FOLDER)
    cores = usable_cores()
    return Machine(
        version=__version__,
        python=platform.python_version(),
        system=platform.system(),
        release=platform.release(),
        architecture=platform.machine(),
        processor=processor,
        features=features,
        cores=cores,
        cores_online=os.cpu_count() or 1,
        memory=_free_memory(),
        shm=shm,
        shm_free=shm_free,
        shm_needed=_shared_memory(cores),
        open_files=resource.getrlimit(resource.RLIMIT_NOFILE)[1],
        models=_model_cache(default_model_file()),
        cards=count_cards(_KFD_NODES),
        kfd=node([_KFD]),
        render=node(_DRI.glob("renderD*")),
        rocm=_content(_ROCM_VERSION).strip() or None,
        variables={name: os.environ[name] for name in VARIABLES if name in os.environ},
    )


def read_cpuinfo(text: str) -> tuple[str, frozenset[str]]:
    """The processor's name and its features, out of /proc/cpuinfo as x86 and ARM have it."""
    name, features = "unknown", frozenset[str]()
    for line in reversed(text.splitlines()):
        key, _, value = (part.strip() for part in line.partition(":"))
        if key == "model name":
            name = value
        if key in ("flags", "Features"):
            features = frozenset(value.split())
    return name, features


def count_cards(nodes: Path) -> int:
    """How many nodes of the driver's topology are GPUs: those with SIMD units. A container sees all of the host's."""
    found = (_content(properties).split() for properties in nodes.glob("*/properties"))
    return sum(int(words[words.index("simd_count") + 1]) > 0 for words in found if "simd_count" in words)


def node(paths: Iterable[Path]) -> Node:
    """What may be done with the first of these device files that can be opened."""
    there = [path for path in paths if path.exists()]
    if not there:
        return Node.ABSENT
    return Node.OPEN if any(os.access(path, os.R_OK | os.W_OK) for path in there) else Node.CLOSED


def _free_memory() -> int:
    available = int(psutil.virtual_memory().available)
    headroom = cgroup_headroom()
    return available if headroom is None else min(available, headroom)


def _shared_memory(cores: int) -> int:
    """Bytes of all segments of a server with default flags."""
    topology = build(Config(model="", served_model_names=("any",)), cores)
    return sum(segment.bytes for segment in topology.segments)


def _model_cache(file: Path) -> ModelCache:
    """The folder may not be there yet: what counts then is the nearest one above it that is."""
    there = next((folder for folder in file.parents if _holds(folder, Path.is_dir)), file.parent)
    return ModelCache(
        folder=file.parent,
        stored=_holds(file, is_default_model),
        writable=os.access(there, os.W_OK | os.X_OK),
        free=_room(there)[1],
    )


def _holds(path: Path, what: Callable[[Path], bool]) -> bool:
    """Whether something can be said of a path; not if it lies behind a folder that is closed to us."""
    try:
        return what(path)
    except OSError:
        return False


def _room(folder: Path) -> tuple[int, int]:
    """Bytes in all and free of the file system of a folder; none where there is no such folder."""
    try:
        usage = shutil.disk_usage(folder)
    except OSError:
        return 0, 0
    return usage.total, usage.free


def _content(path: Path) -> str:
    """A small file, or nothing where there is none or it is closed to us."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
