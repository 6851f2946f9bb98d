"""`fourstroke kernels`, without compiling: what is shown, kept and refused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from fourstroke.common.errors import ConfigError, TargetMissed
from fourstroke.procs.executor.kernels.architectures import ARCHITECTURES
from fourstroke.procs.executor.kernels.proof import command
from fourstroke.procs.executor.kernels.proof.command import run
from fourstroke.procs.executor.kernels.proof.compiler import Outcome
from fourstroke.procs.executor.kernels.proof.figures import Built, NoFigures, read_figures
from fourstroke.procs.executor.kernels.proof.report import as_markdown

from .assemblies import PRODUCT, like

FILES = ("matmul", "rope")


class Compiler:
    """Stands in for the compiler: what it would build of each file for each architecture."""

    def __init__(self) -> None:
        self.built: dict[tuple[str, str], tuple[Built, ...]] = {
            (file, arch): (like(PRODUCT, file=file, arch=arch, wave=ARCHITECTURES[arch].wave),)
            for file in FILES
            for arch in ARCHITECTURES
        }
        self.failures: tuple[str, ...] = ()

    def compile_all(self, files: Sequence[str], archs: Sequence[str], workers: int) -> Iterator[Outcome]:
        """As the real one."""
        assert workers >= 1
        for file in files:
            for arch in archs:
                yield Outcome(arch, file, self.built[file, arch], self.failures)

    def change(self, **changes: object) -> None:
        """From now on "matmul" for gfx942 has other figures."""
        self.built["matmul", "gfx942"] = (like(PRODUCT, **changes),)


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> Compiler:
    """The stand-in, in place of the real one."""
    stand_in = Compiler()
    monkeypatch.setattr(command, "compile_all", stand_in.compile_all)
    monkeypatch.setattr(command, "kernel_files", lambda patterns: FILES if "*" in patterns else tuple(patterns))
    return stand_in


def test_what_is_reported_passes(compiler: Compiler, tmp_path: Path) -> None:
    """After a report the check is content; both files are written, and of the same figures."""
    run("report", [], ["*"], tmp_path)
    run("check", [], ["*"], tmp_path)
    figures = read_figures(tmp_path / "amd-kernels.json")
    assert len(figures.built) == len(FILES) * len(ARCHITECTURES)
    assert (tmp_path / "amd-kernels.md").read_text() == as_markdown(figures)


def test_a_regression(compiler: Compiler, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The check says in words what has become worse, and fails; the report accepts it."""
    run("report", [], ["*"], tmp_path)
    compiler.change(vgprs=95)
    with pytest.raises(TargetMissed, match="1 finding, above"):
        run("check", [], ["*"], tmp_path)
    assert "gfx942 matmul._matmul [bf16]: vector registers 95, and 94 in the report" in capsys.readouterr().out
    run("check", ["gfx950"], ["*"], tmp_path)
    run("report", [], ["*"], tmp_path)
    run("check", [], ["*"], tmp_path)


@pytest.mark.parametrize("action", ["show", "report", "check"])
def test_beyond_the_limits(compiler: Compiler, tmp_path: Path, action: str) -> None:
    """A kernel that spills is refused whatever is asked for, and is never kept."""
    run("report", [], ["*"], tmp_path)
    compiler.change(scratch_bytes=8, vgpr_spills=2)
    before = (tmp_path / "amd-kernels.json").read_text()
    with pytest.raises(TargetMissed, match="2 findings"):
        run(action, [], ["*"], tmp_path)
    assert (tmp_path / "amd-kernels.json").read_text() == before


def test_what_does_not_compile(compiler: Compiler, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is told, and nothing is kept."""
    compiler.failures = ("gfx942 rope does not compile: because",)
    with pytest.raises(TargetMissed):
        run("report", ["gfx942"], ["rope"], tmp_path)
    assert "gfx942 rope does not compile: because" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_a_part_of_the_report(compiler: Compiler, tmp_path: Path) -> None:
    """Only what was compiled is written anew; the rest stays, except for kernels that there are no longer."""
    run("report", [], ["*"], tmp_path)
    compiler.change(vgprs=95)
    compiler.built["rope", "gfx942"] = ()
    run("report", ["gfx942"], ["matmul"], tmp_path)
    kept = read_figures(tmp_path / "amd-kernels.json").by_key
    assert len(kept) == len(FILES) * len(ARCHITECTURES)
    assert kept[PRODUCT.key].assembly.vgprs == 95
    run("report", ["gfx942"], ["rope"], tmp_path)
    kept = read_figures(tmp_path / "amd-kernels.json").by_key
    assert len(kept) == len(FILES) * len(ARCHITECTURES) - 1


def test_a_kernel_that_is_gone(compiler: Compiler, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its figures leave the report with it."""
    run("report", [], ["*"], tmp_path)
    monkeypatch.setattr(command, "kernel_files", lambda _: ("matmul",))
    run("report", [], ["*"], tmp_path)
    assert {built.file for built in read_figures(tmp_path / "amd-kernels.json").built} == {"matmul"}


def test_another_version_of_triton(
    compiler: Compiler, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its figures are not compared, which is said; the limits hold all the same; and the two do not mix in a report."""
    run("report", [], ["*"], tmp_path)
    monkeypatch.setattr(command, "TRITON_VERSION", "4.0")
    compiler.change(vgprs=95)
    run("check", [], ["*"], tmp_path)
    assert "this is 4.0: only the limits were checked" in capsys.readouterr().out
    with pytest.raises(ConfigError, match=r"this is 4\.0: report on all"):
        run("report", ["gfx942"], ["*"], tmp_path)
    compiler.change(scratch_bytes=8)
    with pytest.raises(TargetMissed):
        run("check", [], ["*"], tmp_path)
    compiler.change(vgprs=95)
    run("report", [], ["*"], tmp_path)
    assert read_figures(tmp_path / "amd-kernels.json").triton == "4.0"


def test_show(compiler: Compiler, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The tables of what was asked for, and no file."""
    run("show", ["gfx942", "gfx1100"], ["matmul"], tmp_path)
    titles = [line for line in capsys.readouterr().out.splitlines() if line.startswith("## ")]
    assert [title.split(":")[0] for title in titles] == ["## gfx942", "## gfx1100"]
    assert list(tmp_path.iterdir()) == []


def test_nothing_to_compare_with(compiler: Compiler, tmp_path: Path) -> None:
    """Without a report, and without a folder for it, as after an installation, the check says so."""
    with pytest.raises(NoFigures, match=r"'fourstroke kernels report' writes it"):
        run("check", [], ["*"], tmp_path)
    with pytest.raises(NoFigures, match="kept with the source"):
        run("check", [], ["*"], tmp_path / "nowhere")


def test_an_architecture_that_there_is_not(compiler: Compiler, tmp_path: Path) -> None:
    """It is refused with those that there are."""
    with pytest.raises(ConfigError, match="no architecture is called 'gfx1030'; there are gfx90a, gfx942"):
        run("show", ["gfx942", "gfx1030"], ["*"], tmp_path)
