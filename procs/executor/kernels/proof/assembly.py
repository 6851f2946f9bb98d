"""Reads AMDGPU assembly as LLVM prints it: registers, spills, occupancy, and the instructions of the matrix units.

Knows text only: no compiler, no limits. The figures stand in the metadata at the end (".vgpr_count: 92"; LLVM's "User
Guide for AMDGPU Backend", section "Code Object Metadata") and in the comments below the code ("; Occupancy: 5").
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from .....common.errors import FourstrokeError

_MATRIX = re.compile(r"^\s+(v_(?:mfma|smfmac|wmma|swmmac)_\w+)", re.MULTILINE)
_NUMBER = r"^[\s;-]*{name}:\s*(\d+)\s*$"


class UnreadableAssembly(FourstrokeError):
    """The assembly lacks a figure: this version of the compiler writes it in another way."""


@dataclass(frozen=True, slots=True)
class Assembly:
    """The figures of one compiled kernel. Registers are counted for each lane, as the hardware allocates them."""

    matrix: Mapping[str, int]
    """How many instructions of the matrix units the code has, by name."""
    vgprs: int
    """Vector registers; those of the accumulators, which are of the same file on gfx90a and later, included."""
    agprs: int
    """Accumulator registers of the matrix units; gfx11 and gfx12 have none."""
    sgprs: int
    scratch_bytes: int
    """Memory of each lane, for what does not fit into registers."""
    vgpr_spills: int
    sgpr_spills: int
    """Scalar registers that were moved to lanes of vector registers: this costs instructions, but no memory."""
    occupancy: int
    """Waves that a SIMD can hold at once, as far as registers go; the LDS is not counted."""
    wave: int
    """Lanes of a wave."""


def read_assembly(text: str) -> Assembly:
    """The figures of an assembly with one kernel. Raises UnreadableAssembly if one is missing."""
    return Assembly(
        matrix=matrix_instructions(text),
        vgprs=_number(text, ".vgpr_count"),
        agprs=_number(text, ".agpr_count", default=0),
        sgprs=_number(text, ".sgpr_count"),
        scratch_bytes=_number(text, ".private_segment_fixed_size"),
        vgpr_spills=_number(text, ".vgpr_spill_count"),
        sgpr_spills=_number(text, ".sgpr_spill_count"),
        occupancy=_number(text, "Occupancy"),
        wave=_number(text, ".wavefront_size"),
    )


def matrix_instructions(text: str) -> dict[str, int]:
    """How many instructions of the matrix units the code has, by name, the most frequent first."""
    found = Counter(_MATRIX.findall(text))
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def _number(text: str, name: str, default: int | None = None) -> int:
    found = re.search(_NUMBER.format(name=re.escape(name)), text, re.MULTILINE)
    if found is not None:
        return int(found[1])
    if default is None:
        raise UnreadableAssembly(f"the assembly has no figure {name}")
    return default
