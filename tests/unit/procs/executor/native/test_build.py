"""Building the kernels: once, by whatever compiler there is, or the reason why not. The compilers here are scripts."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import pytest

from fourstroke.common.errors import ResourceError
from fourstroke.procs.executor.native import build
from fourstroke.procs.executor.native.build import Compiler, built_library, find_compiler
from fourstroke.procs.executor.native.library import Library

SAYS_VERSION = 'case "$1" in --version) echo "cc 1.0"; echo more; exit;; esac\n'
WRITES = 'while [ "$1" != -o ]; do shift; done\necho library > "$2"\n'


class Compilers:
    """A folder of compilers, which is all of the PATH."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "log"
        folder.mkdir()

    def add(self, name: str, script: str) -> None:
        path = self.folder / name
        path.write_text("#!/bin/sh\n" + script)
        path.chmod(0o755)

    def add_good(self, name: str = "cc") -> None:
        """One that writes a line for each library that it builds."""
        self.add(name, f'{SAYS_VERSION}echo "$@" >> {self.log}\n{WRITES}')

    @property
    def builds(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []


@pytest.fixture
def compilers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Compilers:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return Compilers(tmp_path / "bin")


def test_a_library_is_built_once(compilers: Compilers, tmp_path: Path) -> None:
    """The second time it is found; nothing else is left in the folder, which is made if need be."""
    compilers.add_good()
    cache = tmp_path / "a" / "b"
    path = built_library(cache)
    assert built_library(cache) == path
    assert len(compilers.builds) == 1
    assert list(cache.iterdir()) == [path] and path.read_text() == "library\n"


@pytest.mark.parametrize("which", ["folder", "library"])
def test_what_others_can_write_is_not_run(compilers: Compilers, tmp_path: Path, which: str) -> None:
    """Neither a library that anybody could have put there, nor one that anybody could replace."""
    compilers.add_good()
    cache = tmp_path / "cache"
    path = built_library(cache)
    assert cache.stat().st_mode & 0o777 == 0o700
    (cache if which == "folder" else path).chmod(0o777)
    with pytest.raises(ResourceError, match="written by other users"):
        built_library(cache)


def test_what_decides_gives_another_file(compilers: Compilers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A flag, the processor, the compiler's version and the sources each have a library of their own."""
    compilers.add_good()
    paths = [built_library(tmp_path), built_library(tmp_path, ("-DNO_AMX",))]
    assert "-DNO_AMX" in compilers.builds[1].split()
    with monkeypatch.context() as other:
        other.setattr(build, "_processor", lambda: "flags : another")
        paths.append(built_library(tmp_path))
    with monkeypatch.context() as other:
        other.setattr(build, "find_compiler", lambda: Compiler(str(compilers.folder / "cc"), "cc 1.1"))
        paths.append(built_library(tmp_path))
    sources = tmp_path / "sources"
    sources.mkdir()
    (sources / "other.c").write_text("int other;")
    monkeypatch.setattr(build, "SOURCES", sources)
    paths.append(built_library(tmp_path))
    assert len(set(paths)) == len(compilers.builds) == 5


def test_the_first_compiler_that_runs(compilers: Compilers) -> None:
    """One that cannot even say its version is passed over."""
    compilers.add("cc", "exit 1")
    compilers.add_good("clang")
    assert find_compiler() == Compiler(str(compilers.folder / "clang"), "cc 1.0")


def test_no_compiler(compilers: Compilers, tmp_path: Path) -> None:
    """It is said which are looked for."""
    with pytest.raises(ResourceError, match=r"no C compiler \(cc, gcc, clang\)"):
        built_library(tmp_path)


def test_a_compiler_that_fails(compilers: Compilers, tmp_path: Path) -> None:
    """Its words are passed on, on one line, and nothing is left behind."""
    compilers.add("cc", SAYS_VERSION + 'echo "a.c:1: error:\n  no" >&2\nexit 1')
    with pytest.raises(ResourceError, match=r"cc could not build the kernels: a\.c:1: error: no"):
        built_library(tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_compiler_that_never_ends(compilers: Compilers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is given up."""
    compilers.add("cc", SAYS_VERSION + "while :; do :; done")
    monkeypatch.setattr(build, "_TIME_LIMIT_S", 0.1)
    with pytest.raises(ResourceError, match="did not build"):
        built_library(tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_folder_that_cannot_be(compilers: Compilers, tmp_path: Path) -> None:
    """A cache below a file is refused in words."""
    compilers.add_good()
    (tmp_path / "file").touch()
    with pytest.raises(ResourceError, match="cannot be built in"):
        built_library(tmp_path / "file" / "cache")


def test_a_compiler_that_is_gone(compilers: Compilers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was there a moment ago: told in words, and nothing is left behind."""
    monkeypatch.setattr(build, "find_compiler", lambda: Compiler(str(compilers.folder / "gone"), "cc 1.0"))
    with pytest.raises(ResourceError, match=r"cannot be built in .*cache: .*gone"):
        built_library(tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_folder_that_does_not_take_it(compilers: Compilers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same of a library that cannot be put in its place."""

    def full(_self: Path, _target: Path) -> Path:
        raise OSError(errno.ENOSPC, "No space left on device")

    compilers.add_good()
    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(ResourceError, match=r"cannot be built in .*cache: .*No space left"):
        built_library(tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_two_processes_at_once(compilers: Compilers, tmp_path: Path) -> None:
    """Each builds, neither sees the other's half: both get the same whole library."""
    meet = "cd ${0%/*}\nif (set -C; : > first) 2>/dev/null; then until [ -e second ]; do :; done; else : > second; fi\n"
    compilers.add("cc", f"{SAYS_VERSION}{meet}{WRITES}")
    program = "import pathlib, sys; from fourstroke.procs.executor.native.build import built_library as b\n"
    program += "print(b(pathlib.Path(sys.argv[1])))"
    command = [sys.executable, "-c", program, str(tmp_path / "cache")]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = [process.communicate(timeout=100)[0].strip() for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert said[0] == said[1]
    assert list(map(str, (tmp_path / "cache").iterdir())) == [said[0]]
    assert Path(said[0]).read_text() == "library\n"


def test_a_file_that_is_no_library(tmp_path: Path) -> None:
    """It is refused in words."""
    (tmp_path / "kernels.so").write_text("library")
    with pytest.raises(ResourceError, match="cannot be loaded"):
        Library(tmp_path / "kernels.so")
