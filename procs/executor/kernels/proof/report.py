"""Writes docs/amd-kernels.md: a table of figures for each architecture, below a head that says what they prove.

Pure: figures in, Markdown out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..architectures import ARCHITECTURES, Architecture
from .figures import Built, Figures, ordered

_HEAD = """\
# The kernels, compiled for AMD GPUs

Each Triton kernel in `procs/executor/kernels` is compiled ahead of time for five architectures, with the constants and
the tuning that its launcher uses there, on a machine without a GPU; then its assembly is read. This file is written by
`fourstroke kernels report`, with its figures in `amd-kernels.json` beside it, and CI runs `fourstroke kernels check`.
These figures are of Triton {triton}.

What this proves, for every row of the tables, on every commit:

- it compiles for the architecture, with waves as wide as the card's;
- no register is spilled to memory: scratch is 0;
- a program's local memory (LDS) fits: 64 KiB, 160 KiB on gfx950;
- a kernel that multiplies matrices does so on the matrix units (`v_mfma`, `v_wmma`), and one that multiplies 8-bit
  floats does so in 8 bits where the card can;
- it needs no more vector registers, and leaves no fewer waves on a SIMD, than the commit before. A change that is meant
  is accepted by writing the report again.

That the kernels compute what they should is shown elsewhere: `tests/kernels` runs the same source in Triton's
interpreter against PyTorch in float32. What neither can show: how fast they are, races between the waves of a program,
memory that is read out of bounds without being used, what the driver does, and how a matrix unit rounds. For these the
first machine with a card is needed: `fourstroke doctor` compares a GEMM and an attention with float32 there.

Columns: waves of a program × pipeline stages; vector registers of a lane (of which accumulators); spills of scalar
registers, which go to vector registers; LDS of a program in KiB; waves that a SIMD holds at once, by registers and LDS;
instructions of the matrix units in the code.
"""

_HEADINGS = (
    "kernel",
    "variant",
    "waves × stages",
    "VGPRs",
    "SGPR spills",
    "LDS",
    "waves a SIMD",
    "matrix instructions",
)
_RULES = ("---", "---", *["---:"] * 5, "---")


def as_markdown(figures: Figures) -> str:
    """The whole report."""
    tables = (table(architecture, figures.built) for architecture in ARCHITECTURES.values())
    return "\n".join([_HEAD.format(triton=figures.triton), *(text for text in tables if text)])


def table(architecture: Architecture, built: Sequence[Built]) -> str:
    """The section of one architecture; empty if nothing was compiled for it."""
    rows = [_row(one) for one in ordered(built) if one.arch == architecture.name]
    if not rows:
        return ""
    lines = [f"## {architecture.name}: {architecture.cards}, waves of {architecture.wave}", ""]
    return "\n".join([*lines, *_aligned([_HEADINGS, _RULES, *rows]), ""])


def _row(built: Built) -> tuple[str, ...]:
    found = built.assembly
    return (
        f"{built.file}.{built.kernel}",
        built.variant,
        f"{built.num_warps} × {built.num_stages}",
        f"{found.vgprs} ({found.agprs})" if found.agprs else str(found.vgprs),
        str(found.sgpr_spills),
        f"{built.lds_bytes / 1024:.3g}",
        f"{built.waves:g}",
        ", ".join(f"{count} {name}" for name, count in found.matrix.items()),
    )


def _aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """The rows of a Markdown table, padded so that it can be read as text, too."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (_padded(cell, width, rule) for cell, width, rule in zip(row, widths, _RULES, strict=True))
        yield f"| {' | '.join(cells)} |"


def _padded(cell: str, width: int, rule: str) -> str:
    if cell == rule:
        return cell[:1] * (width - 1) + cell[-1]
    return cell.rjust(width) if rule.endswith(":") else cell.ljust(width)
