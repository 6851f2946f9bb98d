"""The folder for a server's sockets: where it lies and who may enter."""

import tempfile
from pathlib import Path

import pytest

from fourstroke.common.errors import ResourceError
from fourstroke.ipc.segment import owner_tag
from fourstroke.launch.surroundings import make_socket_folder


def test_socket_folder(monkeypatch):
    """The folder belongs to its user alone, lies where the user's sockets belong, and is made once."""
    folder = tempfile.mkdtemp(dir="/tmp")
    monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
    made = make_socket_folder(owner_tag())
    assert (made.parent, made.stat().st_mode & 0o777) == (Path(folder), 0o700)
    with pytest.raises(ResourceError, match="cannot make the socket folder"):
        make_socket_folder(owner_tag())
    made.rmdir()
    made.parent.rmdir()


@pytest.mark.parametrize("parent", ["/no/such/folder", "/tmp/" + "x" * 60])
def test_socket_folder_elsewhere(monkeypatch, parent):
    """A run-time folder that is missing, or too long for a socket's path, is not used."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", parent)
    made = make_socket_folder(owner_tag())
    made.rmdir()
    assert made.parent == Path("/tmp")
