"""The figures, and the file in which they are kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from fourstroke.procs.executor.kernels.architectures import ARCHITECTURES
from fourstroke.procs.executor.kernels.proof.figures import (
    Built,
    Figures,
    NoFigures,
    ordered,
    read_figures,
    write_figures,
)

from .assemblies import PRODUCT, like


@pytest.mark.parametrize(
    "built, waves",
    [
        (PRODUCT, 4),
        (like(PRODUCT, lds_bytes=0), 5),
        (like(PRODUCT, lds_bytes=1024), 5),
        (like(PRODUCT, lds_bytes=65536), 1),
        (like(PRODUCT, lds_bytes=65536, num_warps=8), 2),
        (like(PRODUCT, lds_bytes=65536, num_warps=2), 0.5),
        (like(PRODUCT, lds_bytes=65536, arch="gfx950"), 2),
        (like(PRODUCT, lds_bytes=65536, arch="gfx1100"), 2),
    ],
)
def test_waves(built: Built, waves: float) -> None:
    """Registers or the LDS, whichever is scarcer, say how many waves a SIMD can hold."""
    assert built.waves == waves


def test_the_order() -> None:
    """Architectures as in their table, then kernels and variants by name, from whatever order."""
    some = [like(PRODUCT, arch=arch, variant=variant) for arch in reversed(ARCHITECTURES) for variant in ("b", "a")]
    assert [(one.arch, one.variant) for one in ordered(some)] == [
        (arch, variant) for arch in ARCHITECTURES for variant in ("a", "b")
    ]


def test_what_is_written_is_read(tmp_path: Path) -> None:
    """The file gives back all figures, in order, a variant a line."""
    figures = Figures("3.9.0", (like(PRODUCT, arch="gfx1100"), PRODUCT))
    write_figures(figures, tmp_path / "figures.json")
    read = read_figures(tmp_path / "figures.json")
    assert (read.triton, read.built) == ("3.9.0", ordered(figures.built))
    assert len((tmp_path / "figures.json").read_text().splitlines()) == 4


def test_no_figures(tmp_path: Path) -> None:
    """A file that is not there, and one that is damaged, are told apart, and both say what to do."""
    with pytest.raises(NoFigures, match=r"cannot read .*No such file.*kernels report"):
        read_figures(tmp_path / "figures.json")
    for content in ("", "[]", "{}", '{"triton": "3", "built": [{}]}', '{"triton": "3", "built": 1}'):
        (tmp_path / "figures.json").write_text(content)
        with pytest.raises(NoFigures, match="is damaged"):
            read_figures(tmp_path / "figures.json")
