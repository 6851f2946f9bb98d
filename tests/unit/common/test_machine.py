"""Limits of containers, read from files laid out as the kernel lays them out."""

from pathlib import Path

import pytest

from fourstroke.common import machine


def group(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_text(content + "\n")


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "cgroup"
    path.write_text("0::/outer/inner\n")
    return path


def test_the_tightest_of_the_nested_limits_holds(tmp_path: Path, own: Path) -> None:
    """A limit of any group above counts; file pages that can be dropped are no use of memory."""
    root = tmp_path / "fs"
    group(root / "outer", memory__max="1000", memory__current="600", memory__stat="anon 1\ninactive_file 100")
    group(root / "outer/inner", memory__max="max", memory__current="600")
    assert machine.cgroup_headroom(root, own) == 500
    group(root / "outer/inner", memory__max="650")
    assert machine.cgroup_headroom(root, own) == 50


def test_a_container_sees_its_own_group_as_the_root(tmp_path: Path) -> None:
    """With a private cgroup namespace the limit lies at the mount itself."""
    own = tmp_path / "cgroup"
    own.write_text("0::/\n")
    group(tmp_path / "fs", memory__max="1000", memory__current="1")
    assert machine.cgroup_headroom(tmp_path / "fs", own) == 999


def test_version_1(tmp_path: Path) -> None:
    """The older layout, limited and not."""
    folder = tmp_path / "fs/memory"
    group(folder, memory__limit_in_bytes="1000", memory__usage_in_bytes="900", memory__stat="total_inactive_file 50")
    assert machine.cgroup_headroom(tmp_path / "fs", tmp_path / "none") == 150
    group(folder, memory__limit_in_bytes=str(2**63 - 4096))
    assert machine.cgroup_headroom(tmp_path / "fs", tmp_path / "none") is None


def test_no_groups_no_limit(tmp_path: Path) -> None:
    """Where there are no cgroups nothing is limited."""
    assert machine.cgroup_headroom(tmp_path, tmp_path / "none") is None


def test_a_quota_of_cores_counts(tmp_path: Path, own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A quota of one core and a half is two threads' worth; no quota leaves the affinity mask."""
    monkeypatch.setattr(machine, "_CGROUPS", tmp_path / "fs")
    monkeypatch.setattr(machine, "_OWN_CGROUP", own)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(64)))
    assert machine.usable_cores() == 64
    group(tmp_path / "fs/outer", cpu__max="150000 100000")
    assert machine.usable_cores() == 2


@pytest.mark.parametrize("files", [64, 256, 1024, 1 << 20])
def test_a_burst_of_connections_leaves_files(files: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Accepted connections and a full backlog together leave files to open, unless there are hardly any."""
    monkeypatch.setattr(machine.resource, "getrlimit", lambda _: (files, files))
    assert 0 < machine.listen_backlog() <= files // 4
    assert machine.connection_limit() + machine.listen_backlog() <= max(files - 64, 32)
