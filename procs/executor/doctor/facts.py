"""What torch has on this machine. Whether that is good, checks.py decides."""

from __future__ import annotations

import enum
import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata

import torch

from ..device.selection import torch_build

_TRITON = ("triton", "pytorch-triton-rocm", "triton-rocm", "pytorch-triton")
_AITER = ("amd-aiter", "aiter")
"""Names of the distributions that install these modules."""


class Build(enum.Enum):
    """What a torch was built for, as selection.TorchBuild calls it."""

    CPU = "cpu"
    ROCM = "rocm"
    CUDA = "cuda"


@dataclass(frozen=True, slots=True)
class Order:
    """What the launcher knows.

    Cores that may be used, AMD cards that the driver has, the variables set that may hide some, the C kernels' folder.
    """

    cores: int
    amd_cards: int
    variables: Sequence[str]
    kernels: str


@dataclass(frozen=True, slots=True)
class Card:
    """A device that torch sees; bytes. `arch` is without features: gfx942, not gfx942:sramecc+:xnack-."""

    name: str
    arch: str
    memory: int
    free: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Torch:
    """What was found. `fault` is why there are no cards, in torch's words; `archs` are those it has kernels for.

    `collectives` is the version of RCCL or NCCL, asked for only if there are several cards; None if it has none.
    """

    version: str
    build: Build
    runtime: str
    threads: int
    capability: str
    archs: tuple[str, ...]
    cards: tuple[Card, ...]
    fault: str
    triton: str | None
    aiter: str | None
    collectives: str | None


def look(cores: int) -> Torch:
    """This torch, told to use so many threads from now on."""
    torch.set_num_threads(cores)
    build = Build(torch_build().platform)
    cards, fault = _cards() if build != Build.CPU else ((), "")
    return Torch(
        version=torch.__version__,
        build=build,
        runtime=torch.version.hip or torch.version.cuda or "",
        threads=torch.get_num_threads(),
        capability=torch.backends.cpu.get_cpu_capability(),
        archs=tuple(torch.cuda.get_arch_list()) if cards else (),
        cards=cards,
        fault=fault,
        triton=_version("triton", _TRITON),
        aiter=_version("aiter", _AITER),
        collectives=_collectives() if len(cards) > 1 else None,
    )


def _cards() -> tuple[tuple[Card, ...], str]:
    try:
        torch.cuda.init()  # type: ignore[no-untyped-call]
        return tuple(_card(index) for index in range(torch.cuda.device_count())), ""
    except (RuntimeError, AssertionError) as error:
        return (), str(error).strip().partition("\n")[0]


def _card(index: int) -> Card:
    facts = torch.cuda.get_device_properties(index)
    arch = facts.gcnArchName.partition(":")[0] if torch.version.hip else f"sm_{facts.major}{facts.minor}"
    free, memory = torch.cuda.mem_get_info(index)
    return Card(facts.name, arch, memory, free)


def _collectives() -> str | None:
    try:
        return ".".join(map(str, torch.cuda.nccl.version()))  # type: ignore[no-untyped-call]
    except (RuntimeError, AttributeError):  # a torch that was built without it
        return None


def _version(module: str, distributions: tuple[str, ...]) -> str | None:
    """The version of a module that can be imported, without importing it."""
    if importlib.util.find_spec(module) is None:
        return None
    for name in distributions:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return "of unknown version"
