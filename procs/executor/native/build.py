"""Builds the C kernels for this processor, once: with any C compiler that is here, in seconds.

The library lies in the user's cache under a name that its sources, the compiler and the processor's features decide. So
a home folder that machines share holds one for each of them. Without a compiler the model runs on torch alone, slower.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from ....common.errors import ResourceError

SOURCES = Path(__file__).parent / "src"
COMPILERS = ("cc", "gcc", "clang")
_FLAGS = ("-std=gnu11", "-O3", "-march=native", "-fno-math-errno", "-fPIC", "-shared", "-pthread", "-Wno-psabi")
WITHOUT_AMX = ("-DNO_AMX",)
"""Flags for the compiler: kernels that do not need the system's leave to use the processor's matrix unit."""

_TIME_LIMIT_S = 120


@dataclass(frozen=True, slots=True)
class Compiler:
    """A C compiler: where it is, and what it says its version is."""

    path: str
    version: str


def find_compiler() -> Compiler | None:
    """The first that is on the PATH and runs."""
    for name in COMPILERS:
        path = shutil.which(name)
        if path is not None:
            version = _version(path)
            if version is not None:
                return Compiler(path, version)
    return None


def _version(path: str) -> str | None:
    """What a compiler says that it is; None if it does not run."""
    try:
        command = [path, "--version"]
        asked = subprocess.run(command, capture_output=True, errors="replace", timeout=_TIME_LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return asked.stdout.partition("\n")[0] if asked.returncode == 0 else None


def built_library(cache: Path, extra: tuple[str, ...] = ()) -> Path:
    """The library for this machine, built if it is not in the folder `cache` yet; `extra` are flags for the compiler.

    Raises ResourceError, with what the compiler or the system said, if it cannot be built.
    """
    compiler = find_compiler()
    if compiler is None:
        raise ResourceError(f"there is no C compiler ({', '.join(COMPILERS)})")
    try:
        path = cache / f"kernels-{_fingerprint(compiler, extra)}.so"
        if not path.exists():
            _build(compiler, extra, path)
        _check_owner(path.parent)
        _check_owner(path)
    except OSError as error:  # the folder, the disk, or a compiler that was there a moment ago
        raise ResourceError(f"the kernels cannot be built in {cache}: {error}") from None
    return path


def _check_owner(path: Path) -> None:
    """Raise ResourceError for what somebody else could have written: it would run in this process."""
    status = path.stat()
    if status.st_uid not in (0, os.geteuid()) or status.st_mode & stat.S_IWOTH:
        raise ResourceError(f"{path} can be written by other users, so nothing of it is run")


def _fingerprint(compiler: Compiler, extra: tuple[str, ...]) -> str:
    digest = hashlib.sha256("\n".join((compiler.version, *_FLAGS, *extra, _processor())).encode())
    for source in sorted(SOURCES.iterdir()):
        digest.update(source.name.encode() + source.read_bytes())
    return digest.hexdigest()[:16]


def _processor() -> str:
    """The features of the processor, as Linux names them."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")


def _build(compiler: Compiler, extra: tuple[str, ...], path: Path) -> None:
    """Several processes may do this at once: each builds its own file, and the last one's stays."""
    sources = sorted(map(str, SOURCES.glob("*.c")))
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, unfinished = tempfile.mkstemp(suffix=".so", dir=path.parent)
    os.close(handle)
    command = [compiler.path, *_FLAGS, *extra, "-o", unfinished, *sources, "-lm"]
    try:
        built = subprocess.run(command, capture_output=True, errors="replace", timeout=_TIME_LIMIT_S, check=False)
        if built.returncode:
            raise ResourceError(f"{compiler.path} could not build the kernels: {_tail(built.stderr)}")
        Path(unfinished).replace(path)
    except subprocess.TimeoutExpired:
        raise ResourceError(f"{compiler.path} did not build the kernels in {_TIME_LIMIT_S} s") from None
    finally:
        Path(unfinished).unlink(missing_ok=True)


def _tail(output: str) -> str:
    """The end of what a compiler said, on one line."""
    return " ".join(output.split())[-500:]
