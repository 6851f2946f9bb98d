"""Starts on a machine that has too little of something, or others on it: in words, and without a trace."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from .server import Server, leftovers, wait_gone
from .stand_ins import launcher, start

SERVE = (sys.executable, "-P", "-m", "fourstroke", "serve", "--port=0", "--executor=fake")
AS_ROOT = [] if os.getuid() == 0 else ["--map-root-user"]
UNSHARE = ("unshare", "--mount", *AS_ROOT, "sh", "-ec")
LONG = "/" + "x" * 149


def refusal(command: tuple[str, ...], **environment: str) -> str:
    """The line with which a server refuses to start."""
    with Server(command, env={**os.environ, **environment}) as server:
        assert server.wait() == 3, server.errors
    assert leftovers(server.pid) == []
    line = server.errors.splitlines()[-1]
    assert line.startswith("fourstroke: error: ")
    assert "Traceback" not in server.errors
    return line


def with_mount(where: str, options: str) -> tuple[str, ...]:
    """`fourstroke serve` where a small file system of its own is mounted there; skips where that is not permitted."""
    mount = f"mount -t tmpfs -o {options} none {where}"
    probe = subprocess.run([*UNSHARE, mount], capture_output=True, text=True)
    if probe.returncode:
        pytest.skip(f"no mounts of one's own here: {probe.stderr.strip()}")
    return (*UNSHARE, f'{mount}; exec "$0" "$@"', *SERVE)


def test_too_few_files() -> None:
    """A limit on open files that cannot hold a server is refused with the number that it takes, and that suffices."""
    line = refusal(with_files(20))
    (least,) = re.findall(r"only 20 files may be open, and this server needs (\d+): ", line)
    with Server(with_files(int(least))) as server:
        server.wait_ready()
        assert server.stop() == 0


def with_files(count: int) -> tuple[str, ...]:
    """`fourstroke serve` that may open so many files."""
    return ("sh", "-ec", f'ulimit -n {count}; exec "$0" "$@"', *SERVE)


def test_small_shared_memory() -> None:
    """So is a /dev/shm that is too small for the rings, with what to do about it: 16 MB hold one ingest's, not two."""
    line = refusal((*with_mount("/dev/shm", "size=16m"), "--ingest-procs=2"))
    assert "/dev/shm has no room for" in line
    assert "--shm-size" in line


def test_full_disk(tmp_path: Path) -> None:
    """A cache folder without room for the default model is named."""
    line = refusal(with_mount(str(tmp_path), "nr_inodes=1"), XDG_CACHE_HOME=str(tmp_path))
    assert line == (
        f"fourstroke: error: cannot store the default model in {tmp_path}/fourstroke/models: No space left on device"
    )


def test_long_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders for temporary files whose names are too long for a socket's path do not matter."""
    monkeypatch.setenv("TMPDIR", LONG)
    monkeypatch.setenv("XDG_RUNTIME_DIR", LONG)
    with launcher() as server:
        server.wait_ready()
        assert server.stop() == 0


def test_servers_beside_each_other() -> None:
    """Two servers know nothing of each other; what a third one, killed, has left, the next one that starts removes."""
    with launcher() as one, launcher() as other:
        one.wait_ready()
        other.wait_ready()
        with start({"ingest0": "obey"}) as killed:
            killed.wait_ready()
            children = list(killed.children().values())
            killed.process.kill()
            killed.wait()
        assert wait_gone(children, 10) == []
        assert leftovers(killed.pid) != []
        with launcher() as next_one:
            next_one.wait_ready()
            assert leftovers(killed.pid) == []
            assert all(leftovers(server.pid) for server in (one, other))
        assert one.stop() == 0
        assert leftovers(other.pid) != []
        assert other.stop() == 0
