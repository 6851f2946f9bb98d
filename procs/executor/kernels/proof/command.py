"""What `fourstroke kernels` does: compile, then show the figures, keep them, or hold them against those kept."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from .....common.errors import ConfigError, TargetMissed
from .....common.machine import usable_cores
from ..architectures import ARCHITECTURES
from .compiler import TRITON_VERSION, compile_all, kernel_files
from .figures import Built, Figures, NoFigures, ordered, read_figures, write_figures
from .limits import beyond_limits, worse_than
from .report import as_markdown, table


def run(action: str, archs: Sequence[str], patterns: Sequence[str], docs: Path) -> None:
    """Do "show", "report" or "check" for some architectures (none: all) and the files of kernels that match patterns.

    `docs` is the folder with amd-kernels.md and amd-kernels.json. Raises TargetMissed with what is wrong with a kernel,
    ConfigError for a name that there is not, NoFigures where there is nothing to compare with.
    """
    if unknown := [arch for arch in archs if arch not in ARCHITECTURES]:
        raise ConfigError(f"no architecture is called {unknown[0]!r}; there are {', '.join(ARCHITECTURES)}")
    archs = tuple(archs) or tuple(ARCHITECTURES)
    files = kernel_files(patterns)
    kept = _kept(docs) if action == "check" else None  # first: without them there is nothing to compile for
    figures, wrong = _compiled(files, archs)
    if action == "show":
        _say("\n".join(table(ARCHITECTURES[arch], figures.built) for arch in archs))
    if action == "report" and not wrong:
        _keep(figures, archs, files, docs)
    if kept is not None:
        wrong += _regressions(figures, kept, archs, files)
    if wrong:
        _say("\n".join(wrong))
        findings = "1 finding" if len(wrong) == 1 else f"{len(wrong)} findings"
        raise TargetMissed(f"the kernels are not as they must be: {findings}, above")


def _compiled(files: Sequence[str], archs: Sequence[str]) -> tuple[Figures, list[str]]:
    """All variants, and what is wrong with them by themselves. Says what is done while it works."""
    built: list[Built] = []
    wrong: list[str] = []
    for outcome in compile_all(files, archs, usable_cores()):
        found = [*outcome.failures, *(words for one in outcome.built for words in beyond_limits(one))]
        _say(f"{outcome.arch:8} {outcome.file:20} {len(outcome.built):3} variants{', not all well' if found else ''}")
        built += outcome.built
        wrong += found
    return Figures(TRITON_VERSION, ordered(built)), wrong


def _keep(figures: Figures, archs: Sequence[str], files: Sequence[str], docs: Path) -> None:
    """Write both files. What was not compiled now stays as it is."""
    path = docs / "amd-kernels.json"
    others = _others(path, archs, files)
    if others.built and others.triton != figures.triton:
        raise ConfigError(f"the other figures are of Triton {others.triton}, this is {figures.triton}: report on all")
    whole = Figures(figures.triton, ordered([*others.built, *figures.built]))
    write_figures(whole, path)
    (docs / "amd-kernels.md").write_text(as_markdown(whole))
    _say(f"written: {docs / 'amd-kernels.md'}")


def _others(path: Path, archs: Sequence[str], files: Sequence[str]) -> Figures:
    """What is kept of architectures and kernels that were not compiled now; of kernels that still exist."""
    if not path.exists():
        return Figures(TRITON_VERSION, ())
    kept = read_figures(path)
    known = kernel_files(["*"])
    return Figures(
        kept.triton,
        tuple(one for one in kept.built if one.file in known and not (one.arch in archs and one.file in files)),
    )


def _kept(docs: Path) -> Figures:
    if not docs.is_dir():
        raise NoFigures(f"there is no folder {docs}: the report is kept with the source, not with an installed package")
    return read_figures(docs / "amd-kernels.json")


def _regressions(figures: Figures, kept: Figures, archs: Sequence[str], files: Sequence[str]) -> list[str]:
    """What is worse than it was. Figures of two versions of Triton are not comparable."""
    if kept.triton != figures.triton:
        _say(f"the report is of Triton {kept.triton}, this is {figures.triton}: only the limits were checked")
        return []
    return worse_than(figures, kept, archs, files)


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
