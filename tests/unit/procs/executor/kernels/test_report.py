"""docs/amd-kernels.md: what it shows, and that the one in the repository is of the figures beside it."""

from __future__ import annotations

from pathlib import Path

import fourstroke
from fourstroke.procs.executor.kernels.architectures import ARCHITECTURES
from fourstroke.procs.executor.kernels.proof.figures import Figures, read_figures
from fourstroke.procs.executor.kernels.proof.limits import beyond_limits
from fourstroke.procs.executor.kernels.proof.report import as_markdown, table

from .assemblies import PRODUCT, like

DOCS = Path(fourstroke.__file__).parent / "docs"


def cells(line: str) -> list[str]:
    """The cells of a row of a table, without their padding."""
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_a_row() -> None:
    """Names, launch, registers with accumulators, spills, LDS in KiB, waves, and the matrix units' instructions."""
    built = like(PRODUCT, vgprs=302, agprs=46, sgpr_spills=3, occupancy=1, matrix={"v_mfma_a": 4, "v_mfma_b": 2})
    *_, row = table(ARCHITECTURES["gfx942"], [built]).splitlines()
    assert cells(row) == ["matmul._matmul", "bf16", "4 × 2", "302 (46)", "3", "16", "1", "4 v_mfma_a, 2 v_mfma_b"]


def test_a_table_is_aligned() -> None:
    """All lines of a table are equally long, and as many rows as variants stand under the two of its head."""
    text = table(ARCHITECTURES["gfx942"], [PRODUCT, like(PRODUCT, variant="a longer name", matrix={}), PRODUCT])
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert len({len(line) for line in lines}) == 1
    assert len(lines) == 2 + 3
    assert set("".join(cells(lines[1]))) == {"-", ":"}


def test_each_architecture_has_its_table() -> None:
    """A section for each architecture that was compiled for, none for another."""
    figures = Figures("3.9.0", (PRODUCT, like(PRODUCT, arch="gfx1100")))
    titles = [line for line in as_markdown(figures).splitlines() if line.startswith("## ")]
    assert titles == ["## gfx942: MI300, waves of 64", "## gfx1100: RX 7900, W7900, waves of 32"]
    assert table(ARCHITECTURES["gfx950"], figures.built) == ""


def test_the_version_of_triton_is_said() -> None:
    """Figures of another version are others."""
    assert "Triton 3.9.1." in as_markdown(Figures("3.9.1", ()))


def test_the_report_in_the_repository() -> None:
    """It is what its figures give, for all architectures, and all in it is within the limits."""
    figures = read_figures(DOCS / "amd-kernels.json")
    assert (DOCS / "amd-kernels.md").read_text() == as_markdown(figures)
    assert {built.arch for built in figures.built} == set(ARCHITECTURES)
    assert [words for built in figures.built for words in beyond_limits(built)] == []
