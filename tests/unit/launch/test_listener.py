"""Binding the HTTP socket: what works, and what is refused with which words."""

import contextlib
import socket
import stat
from pathlib import Path

import pytest

from fourstroke.common.config import Config
from fourstroke.common.errors import ConfigError, ResourceError
from fourstroke.launch import listener


def config(**fields: object) -> Config:
    return Config(model="m", served_model_names=("m",), **{"port": 0, **fields})  # type: ignore[arg-type]


def test_listens() -> None:
    """Connections are accepted from the moment of binding, before anybody serves them."""
    bound = listener.bind(config())
    host, port = bound.of_ingest(0).getsockname()
    assert bound.url == f"http://{host}:{port}"
    with socket.create_connection((host, port)):
        bound.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, port))


def test_release(tmp_path: Path) -> None:
    """Once an ingest has ended nobody waits for it on its port; a Unix socket is all ingests' until the end."""
    bound = listener.bind(config())
    where = bound.of_ingest(0).getsockname()
    bound.release(0)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(where)
    bound.close()
    bound = listener.bind(config(unix_socket=str(tmp_path / "http"), ingest_procs=2))
    bound.release(0)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(tmp_path / "http"))
    bound.close()


def test_withdraw(tmp_path: Path) -> None:
    """A server that ends leaves its path to the next one, which keeps it."""
    path = tmp_path / "http"
    first = listener.bind(config(unix_socket=str(path)))
    first.withdraw()
    second = listener.bind(config(unix_socket=str(path)))
    first.withdraw()
    first.close()
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
    second.close()
    assert not path.exists()


def test_ipv6() -> None:
    """An IPv6 address is shown in brackets."""
    bound = listener.bind(config(host="::1"))
    assert bound.url == f"http://[::1]:{bound.of_ingest(0).getsockname()[1]}"
    bound.close()


def test_port_taken() -> None:
    """Two servers cannot listen on one port: the second is told which."""
    first = listener.bind(config())
    port = first.of_ingest(0).getsockname()[1]
    with pytest.raises(ResourceError, match=f"port {port} .* is taken"):
        listener.bind(config(port=port))
    first.close()


def test_shared_port() -> None:
    """Several ingests listen on one port, which a second server still cannot have, nor a share of it."""
    first = listener.bind(config(ingest_procs=3))
    sockets = [first.of_ingest(index) for index in range(3)]
    (where,) = {one.getsockname() for one in sockets}
    clients = [socket.create_connection(where) for _ in range(64)]
    for one in sockets:
        one.settimeout(0.1)
    accepted = []
    for one in sockets:
        with contextlib.suppress(TimeoutError):
            while True:
                accepted.append((one, one.accept()[0]))
    assert len(accepted) == len(clients)
    assert {one for one, _ in accepted} == set(sockets)
    for ingests in (1, 2):
        with pytest.raises(ResourceError, match="is taken"):
            listener.bind(config(port=where[1], ingest_procs=ingests))
    for one in [*clients, *(one for _, one in accepted)]:
        one.close()
    first.close()
    listener.bind(config(port=where[1], ingest_procs=2)).close()


def test_shared_unix_socket(tmp_path: Path) -> None:
    """A Unix socket is one for all ingests."""
    bound = listener.bind(config(unix_socket=str(tmp_path / "s"), ingest_procs=3))
    assert len({bound.of_ingest(index).fileno() for index in range(3)}) == 1
    bound.close()
    bound.close()


def test_port_again() -> None:
    """A port is free for the next server although connections of the last one are still being forgotten."""
    first = listener.bind(config())
    port = first.of_ingest(0).getsockname()[1]
    with socket.create_connection(("127.0.0.1", port)):
        served, _ = first.of_ingest(0).accept()
        served.close()  # this side closes first and holds the port in TIME_WAIT
    first.close()
    listener.bind(config(port=port)).close()


@pytest.mark.parametrize("host", ["no such host", "", "256.1.1.1", "a" * 300])
def test_bad_host(host: str) -> None:
    """A host that is no address is the command line's fault."""
    with pytest.raises(ConfigError, match="--host"):
        listener.bind(config(host=host))


def test_foreign_address() -> None:
    """An address of another machine is refused in words."""
    with pytest.raises(ResourceError, match=r"cannot listen on 192\.0\.2\.1"):
        listener.bind(config(host="192.0.2.1"))


def test_unix(tmp_path: Path) -> None:
    """A Unix socket is for its owner alone, and its path is gone after closing, twice or not."""
    path = tmp_path / "s"
    bound = listener.bind(config(unix_socket=str(path)))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert bound.url == f"unix:{path}"
    with pytest.raises(ResourceError, match="in use"):
        listener.bind(config(unix_socket=str(path)))
    bound.close()
    bound.close()
    assert not path.exists()


def test_unix_keeps_files(tmp_path: Path) -> None:
    """A file that is no socket is never removed for one."""
    path = tmp_path / "s"
    path.write_text("precious")
    with pytest.raises(ResourceError):
        listener.bind(config(unix_socket=str(path)))
    assert path.read_text() == "precious"


def test_unix_path_too_long(tmp_path: Path) -> None:
    """A path that the kernel would cut is refused."""
    with pytest.raises(ConfigError, match="longer than"):
        listener.bind(config(unix_socket=str(tmp_path / ("x" * 108))))
