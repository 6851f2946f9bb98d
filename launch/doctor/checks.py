"""From what a machine has to findings: one function for each line, without a look at the machine itself.

Each knows what a server needs, and what helps where it is missing.
"""

from __future__ import annotations

from collections.abc import Callable

from ...common.devices import LOWER, visible_devices
from ...common.errors import ConfigError
from ...common.finding import Finding, green, red, yellow
from .machine import Machine, Node

MIN_FREE_MEMORY = 1 << 30
"""The default model in bfloat16 with a small KV cache, torch and five Python processes."""

MIN_FILES = 256
GOOD_FILES = 4096
"""A stream is an open file, and a server with fewer refuses connections that it could serve."""

DOCKER_SHM = 64 << 20
"""The size of /dev/shm in a container whose creator did not ask for more."""

GOOD_SHM_FOR_CARDS = 1 << 30
"""RCCL moves what cards cannot read from each other directly through shared memory."""

MODEL_DISK = 200 << 20
"""The default model, and its wheel while it is unpacked."""

_FEATURES = {
    "avx2": "AVX2",
    "avx512f": "AVX-512",
    "avx512_vnni": "AVX-512 VNNI",
    "avx_vnni": "AVX VNNI",
    "avx512_bf16": "AVX-512 BF16",
    "amx_bf16": "AMX bf16",
    "amx_int8": "AMX int8",
    "asimd": "NEON",
    "bf16": "bf16",
    "i8mm": "int8 matrices",
    "sve": "SVE",
}
"""What the CPU backend gains from, by the names that Linux has for it."""


def version(machine: Machine) -> Finding:
    return green("fourstroke", f"{machine.version} on Python {machine.python}")


def system(machine: Machine) -> Finding:
    found = f"{machine.system} {machine.release}, {machine.architecture}"
    if machine.system != "Linux":
        return red("system", found, "run it on Linux, or in a Linux container or virtual machine")
    if machine.architecture != "x86_64":
        return yellow("system", found, "expect surprises: nobody has tested anything but x86_64")
    return green("system", found)


def processor(machine: Machine) -> Finding:
    has = [name for flag, name in _FEATURES.items() if flag in machine.features]
    found = f"{machine.processor}: {', '.join(has) or 'none of the features that help'}"
    if machine.architecture == "x86_64" and "avx512f" not in machine.features:
        return yellow(
            "processor", found, "serve with --dtype float32: without AVX-512 bfloat16 is the slower of the two"
        )
    return green("processor", found)


def cores(machine: Machine) -> Finding:
    found = f"{machine.cores} of {machine.cores_online} usable"
    if machine.cores < 2:
        advice = "give it two cores or more (docker: --cpus and --cpuset-cpus), which its processes would share"
        return yellow("cores", found, advice)
    return green("cores", found)


def memory(machine: Machine) -> Finding:
    found = f"{_size(machine.memory)} free"
    if machine.memory < MIN_FREE_MEMORY:
        advice = f"free {_size(MIN_FREE_MEMORY)} or more for the default model, or raise the limit (docker: --memory)"
        return red("memory", found, advice)
    return green("memory", found)


def shared_memory(machine: Machine) -> Finding:
    found = f"/dev/shm has {_size(machine.shm)}, {_size(machine.shm_free)} free"
    if machine.shm_free < machine.shm_needed:
        advice = f"a server puts {_size(machine.shm_needed)} there: start the container with --shm-size 1g"
        return red("shared memory", found, advice)
    if machine.cards > 1 and machine.shm < GOOD_SHM_FOR_CARDS:
        advice = "start the container with --shm-size 8g or --ipc host, which RCCL needs between cards"
        return yellow("shared memory", found, advice)
    if machine.shm <= DOCKER_SHM:
        advice = "start the container with --shm-size 1g: docker's 64 MB are too little for several engines"
        return yellow("shared memory", found, advice)
    return green("shared memory", found)


def open_files(machine: Machine) -> Finding:
    limit = machine.open_files
    found = "no limit" if limit < 0 else f"up to {limit:,}"
    advice = "raise the hard limit: ulimit -Hn 65536 as root (docker: --ulimit nofile=65536:65536)"
    if 0 <= limit < MIN_FILES:
        return red("open files", found, advice)
    if 0 <= limit < GOOD_FILES:
        return yellow("open files", found, advice)
    return green("open files", found)


def model_cache(machine: Machine) -> Finding:
    cache = machine.models
    if cache.stored:
        return green("model cache", f"{cache.folder} has the default model")
    elsewhere = "or set XDG_CACHE_HOME to another folder"
    if not cache.writable:
        advice = f"make it writable for this user, {elsewhere}: the default model is to be stored there"
        return red("model cache", f"{cache.folder} cannot be written", advice)
    if cache.free < MODEL_DISK:
        advice = f"free {_size(MODEL_DISK)} there, {elsewhere}: the default model is to be stored there"
        return red("model cache", f"{cache.folder} has {_size(cache.free)} left", advice)
    return green("model cache", f"{cache.folder}; the default model will be fetched once")


def driver(machine: Machine) -> Finding:
    """Whether this user reaches the AMD cards that are here."""
    nodes = (("/dev/kfd", machine.kfd), ("/dev/dri/renderD*", machine.render))
    absent = " and ".join(path for path, state in nodes if state is Node.ABSENT)
    closed = " and ".join(path for path, state in nodes if state is Node.CLOSED)
    if machine.kfd is Node.ABSENT and not machine.cards:
        return green("AMD driver", "no AMD card: the model is computed on the CPU")
    if absent:
        level = yellow if machine.kfd is Node.ABSENT else red
        advice = "start the container with --device /dev/kfd --device /dev/dri"
        return level("AMD driver", f"{_cards(machine)}, but {absent} is not here", advice)
    if closed:
        advice = (
            "add this user to the groups of those files: sudo usermod -aG video,render $USER, then log in again "
            "(docker: --group-add video --group-add render)"
        )
        return red("AMD driver", f"{_cards(machine)}, but {closed} is closed to this user", advice)
    return green("AMD driver", f"{_cards(machine)}, /dev/kfd is open")


def visibility(machine: Machine) -> Finding:
    """Whether the variables that choose among devices agree."""
    names = " and ".join(machine.variables)
    try:
        devices = visible_devices(machine.variables)
    except ConfigError as error:
        # ROCR_VISIBLE_DEVICES goes first: it hides devices from whatever asks for them later.
        keep = next(name for name in machine.variables if name != LOWER)
        others = " and ".join(name for name in machine.variables if name != keep)
        return red("visibility", str(error), f"keep {keep} and unset {others}")
    if devices is None:
        return green("visibility", "no variable hides a device")
    if not devices and machine.cards:
        return yellow("visibility", f"{names} hides all cards", f"unset {names} if they are to be used")
    return green("visibility", f"{names}: {', '.join(devices) or 'no device'}")


def rocm(machine: Machine) -> Finding:
    return green("ROCm", machine.rocm or "not in /opt/rocm (a ROCm torch brings its own)")


CHECKS: tuple[Callable[[Machine], Finding], ...] = (
    version,
    system,
    processor,
    cores,
    memory,
    shared_memory,
    open_files,
    model_cache,
    driver,
    visibility,
    rocm,
)
"""The lines, in the order in which they are shown."""


def check(machine: Machine) -> list[Finding]:
    """All findings about a machine."""
    return [of(machine) for of in CHECKS]


def _cards(machine: Machine) -> str:
    return "1 AMD card" if machine.cards == 1 else f"{machine.cards} AMD cards"


def _size(size: int) -> str:
    return f"{size / 2**30:,.1f} GiB" if size >= 1 << 30 else f"{size / 2**20:,.0f} MiB"
