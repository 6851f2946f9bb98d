"""Shared memory: it is there in full or not at all, and only what is dead is cleared away."""

import os
import shutil
import subprocess
import sys
import uuid

import pytest

from fourstroke.common.errors import ResourceError
from fourstroke.ipc.segment import FOLDER, Segment, owned_name, owner_tag, reclaim, ring_name, steps_name


@pytest.fixture
def name():
    """A name that no other test uses."""
    return f"test-{uuid.uuid4().hex}"


@pytest.fixture
def segment(name):
    segment = Segment.create(owner_tag(), name, 5000)
    yield segment
    segment.unlink()


def leftovers(name):
    return [entry.name for entry in FOLDER.iterdir() if name in entry.name]


def test_both_sides_see_the_same_memory(segment, name):
    """A segment is zeroed, has the size asked for, and what one side writes the other reads."""
    other = Segment.attach(owner_tag(), name)
    assert bytes(segment.memory) == bytes(5000)
    segment.memory[4999] = 7
    other.memory[0] = 9
    assert (other.memory[4999], segment.memory[0]) == (7, 9)


def test_memory_outlives_its_name(segment, name):
    """After unlink nobody new finds it, those who have it keep it, and a second unlink is harmless."""
    segment.unlink()
    segment.unlink()
    segment.memory[0] = 1
    assert (segment.memory[0], leftovers(name)) == (1, [])
    with pytest.raises(ResourceError, match="is gone"):
        Segment.attach(owner_tag(), name)


def test_segment_is_for_its_user_alone(segment, name):
    """No other user can open it."""
    (entry,) = leftovers(name)
    assert (FOLDER / entry).stat().st_mode & 0o777 == 0o600


def test_no_room(name):
    """More than the machine has is refused at once, with a way out, and leaves nothing behind."""
    total = shutil.disk_usage(FOLDER).total
    with pytest.raises(ResourceError, match="shm-size"):
        Segment.create(owner_tag(), name, 2 * total)
    assert leftovers(name) == []


def test_space_is_reserved(name):
    """The space is taken when the segment is made, not when it is first written."""
    segment = Segment.create(owner_tag(), name, 1 << 20)
    try:
        (entry,) = leftovers(name)
        assert (FOLDER / entry).stat().st_blocks * 512 >= 1 << 20
    finally:
        segment.unlink()


def test_name_that_is_taken(segment, name):
    """Two segments never share a name in silence."""
    with pytest.raises(ResourceError, match="File exists"):
        Segment.create(owner_tag(), name, 10)


def dead_owner() -> str:
    """The tag of a process that has lived."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    tag = owner_tag(child.pid)
    child.communicate(b"\n")
    return tag


def test_reclaim(tmp_path):
    """What dead owners left goes, files and folders; the living and strangers are not touched."""
    dead, alive = dead_owner(), owner_tag()
    reused = f"{os.getpid()}-{int(alive.partition('-')[2]) + 1}"
    kept = {owned_name(alive), owned_name(alive) + ".board", "other-1-1", "fourstroke", f"my-{owned_name(dead)}"}
    gone = {owned_name(dead) + ".board", owned_name(reused) + ".ring"}
    for entry in kept | gone:
        (tmp_path / entry).write_bytes(b"x")
    folder = tmp_path / owned_name(dead)
    folder.mkdir()
    (folder / "socket").touch()
    assert reclaim(tmp_path) == len(gone) + 1
    assert {entry.name for entry in tmp_path.iterdir()} == kept
    assert reclaim(tmp_path) == 0


def test_names():
    """Each ring and each engine's step slots have a name of their own."""
    names = [ring_name("ingest0", "scheduler0"), ring_name("scheduler0", "output0"), steps_name("scheduler0")]
    assert len(set(names)) == len(names)
