"""The figures of compiled kernels, and the file in which they are kept between two compilations.

Knows no compiler and no table. The compiler makes them, the limits judge them, the report shows them.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .....common.errors import FourstrokeError
from ..architectures import ARCHITECTURES
from .assembly import Assembly

_SIMDS = 4
"""SIMDs that share a pool of LDS, on all our architectures."""


class NoFigures(FourstrokeError):
    """There is no file of figures, or none that we can read."""


@dataclass(frozen=True, slots=True)
class Built:
    """A variant of a kernel that was compiled for an architecture, and what its assembly says."""

    arch: str
    file: str
    """The module of the kernel, "matmul"."""
    kernel: str
    """The function of the kernel."""
    variant: str
    num_warps: int
    num_stages: int
    lds_bytes: int
    dot: bool
    fp8_dot: bool
    assembly: Assembly

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What tells it from all others."""
        return self.arch, self.file, self.kernel, self.variant

    @property
    def name(self) -> str:
        """The key in words."""
        return f"{self.arch} {self.file}.{self.kernel} [{self.variant}]"

    @property
    def waves(self) -> float:
        """Waves that a SIMD can hold at once, by registers and by LDS; below 1 if the LDS leaves SIMDs without work."""
        if not self.lds_bytes:
            return float(self.assembly.occupancy)
        programs = ARCHITECTURES[self.arch].lds_pool_bytes // self.lds_bytes
        return min(float(self.assembly.occupancy), programs * self.num_warps / _SIMDS)


@dataclass(frozen=True, slots=True)
class Figures:
    """All that was compiled, and by which version of Triton."""

    triton: str
    built: tuple[Built, ...]

    @property
    def by_key(self) -> dict[tuple[str, str, str, str], Built]:
        """What was compiled, by its key."""
        return {built.key: built for built in self.built}


def ordered(built: Iterable[Built]) -> tuple[Built, ...]:
    """In the order of the architectures, then of kernels and variants by name."""
    place = {name: at for at, name in enumerate(ARCHITECTURES)}
    return tuple(sorted(built, key=lambda one: (place[one.arch], *one.key)))


def write_figures(figures: Figures, path: Path) -> None:
    """Write the file: JSON with a line for each variant, so that a change is seen in its diff."""
    lines = ",\n".join(" " + json.dumps(dataclasses.asdict(built)) for built in ordered(figures.built))
    path.write_text(f'{{"triton": {json.dumps(figures.triton)}, "built": [\n{lines}\n]}}\n')


def read_figures(path: Path) -> Figures:
    """Read the file. Raises NoFigures if it is not there or is not ours."""
    try:
        content = json.loads(path.read_text())
        return Figures(content["triton"], tuple(_built(fields) for fields in content["built"]))
    except OSError as error:
        raise NoFigures(f"cannot read {path}: {error.strerror}; 'fourstroke kernels report' writes it") from None
    except (ValueError, TypeError, KeyError):
        raise NoFigures(f"{path} is damaged; 'fourstroke kernels report' writes it anew") from None


def _built(fields: Mapping[str, Any]) -> Built:
    return Built(**{**fields, "assembly": Assembly(**fields["assembly"])})
