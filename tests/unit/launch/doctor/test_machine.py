"""Facts of a machine, out of files laid out as the kernel lays them out."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fourstroke.launch.doctor import machine
from fourstroke.launch.doctor.machine import Node, count_cards, look, node, read_cpuinfo

X86 = """processor\t: 0
model name\t: Some Processor @ 2.00GHz
flags\t\t: fpu avx2 avx512f

processor\t: 1
model name\t: Some Processor @ 2.00GHz
flags\t\t: fpu avx2 avx512f
"""
ARM = """processor\t: 0
BogoMIPS\t: 50.00
Features\t: fp asimd bf16
"""


@pytest.mark.parametrize(
    "text, name, features",
    [
        (X86, "Some Processor @ 2.00GHz", {"fpu", "avx2", "avx512f"}),
        (ARM, "unknown", {"fp", "asimd", "bf16"}),
        ("", "unknown", set()),
    ],
)
def test_cpuinfo(text: str, name: str, features: set[str]) -> None:
    """The name and the features, by either of their names; nothing where there is nothing."""
    assert read_cpuinfo(text) == (name, features)


def test_cards_are_the_nodes_with_simd_units(tmp_path: Path) -> None:
    """The driver's topology lists processors too, and files that are closed to us."""
    for name, content in {"0": "cpu_cores_count 8\nsimd_count 0\n", "1": "simd_count 304\n", "2": ""}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "properties").write_text(content)
    assert count_cards(tmp_path) == 1
    assert count_cards(tmp_path / "none") == 0


def test_device_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """None there, none that may be opened, or one at least."""
    shut, free = tmp_path / "shut", tmp_path / "free"
    shut.touch()
    free.touch()
    monkeypatch.setattr(os, "access", lambda path, mode: path != shut)
    assert node([]) is Node.ABSENT
    assert node([tmp_path / "none"]) is Node.ABSENT
    assert node([shut]) is Node.CLOSED
    assert node([shut, free]) is Node.OPEN


def test_a_cache_that_is_not_there_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the nearest folder above it that must have room and be writable; nothing is made by looking."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "not" / "yet"))
    asked = []
    monkeypatch.setattr(os, "access", lambda path, mode: asked.append(path) or path == tmp_path)
    cache = look().models
    assert tmp_path in asked
    assert (cache.writable, cache.stored) == (True, False)
    assert cache.free > 0
    assert not (tmp_path / "not").exists()


def test_a_cache_behind_a_closed_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a container runs for a user whose home is another's: it is not there and cannot be written."""

    plain = Path.is_dir

    def closed(path: Path) -> bool:
        if path.is_relative_to("/another"):
            raise PermissionError
        return plain(path)

    monkeypatch.setenv("XDG_CACHE_HOME", "/another/home")
    monkeypatch.setattr(machine, "is_default_model", closed)
    monkeypatch.setattr(Path, "is_dir", closed)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    cache = look().models
    assert (cache.stored, cache.writable) == (False, False)


def test_no_shared_memory_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without /dev/shm has none of it."""
    monkeypatch.setattr(machine, "FOLDER", tmp_path / "none")
    found = look()
    assert (found.shm, found.shm_free) == (0, 0)


def test_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it is, looking at it works, and its variables are those that choose devices."""
    for name in machine.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ROCR_VISIBLE_DEVICES", "0")
    found = look()
    assert found.variables == {"ROCR_VISIBLE_DEVICES": "0"}
    assert found.shm_needed > 0
    assert 1 <= found.cores <= found.cores_online
