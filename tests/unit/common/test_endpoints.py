"""Endpoints of ranks: each has its own, ranges that overlap are refused, and others learn where to connect."""

import re
import socket
from collections.abc import Iterator

import pytest

from fourstroke.common import endpoints
from fourstroke.common.endpoints import (
    check_apart,
    check_endpoint,
    filled_in,
    fixed,
    of_rank,
    port_of,
    public_host,
    reachable,
)
from fourstroke.common.errors import ConfigError

PUB, REPLAY = "--pub", "--replay"


@pytest.mark.parametrize(
    "endpoint, rank, expected",
    [
        ("tcp://127.0.0.1:5557", 0, "tcp://127.0.0.1:5557"),
        ("tcp://127.0.0.1:5557", 3, "tcp://127.0.0.1:5560"),
        ("tcp://*:0", 3, "tcp://*:0"),
        ("tcp://[::1]:80", 1, "tcp://[::1]:81"),
        ("ipc:///tmp/x", 0, "ipc:///tmp/x"),
        ("ipc:///tmp/x", 2, "ipc:///tmp/x_dp2"),
        ("inproc://x", 1, "inproc://x_dp1"),
    ],
)
def test_of_rank(endpoint, rank, expected):
    """A port further, or a name of its own; port 0 stays any port."""
    assert of_rank(endpoint, rank) == expected


@pytest.mark.parametrize(
    "first, second, ranks",
    [("tcp://*:5557", "tcp://*:5558", 2), ("tcp://a:100", "tcp://b:98", 3), ("tcp://*:7", "tcp://*:7", 1)]
    + [("ipc://x", "ipc://x", 1), ("tcp://*:65530", "tcp://*:100", 8)],
)
def test_ranges_that_overlap(first, second, ranks):
    """Are refused, with both of them named, and so are ranges that go beyond the last port."""
    with pytest.raises(ConfigError, match=r"--pub .*--replay") as caught:
        check_apart(PUB, first, REPLAY, second, ranks)
    assert first in str(caught.value) and second in str(caught.value)


@pytest.mark.parametrize(
    "first, second, ranks",
    [("tcp://*:5557", "tcp://*:5558", 1), ("tcp://*:5557", "tcp://*:5657", 100), ("tcp://*:0", "tcp://*:0", 4)]
    + [("ipc://x", "ipc://y", 2), ("tcp://*:5557", "ipc://y", 2)],
)
def test_ranges_that_do_not(first, second, ranks):
    check_apart(PUB, first, REPLAY, second, ranks)


@pytest.mark.parametrize(
    "endpoint", ["", "5557", "tcp://*", "tcp://*:x", "tcp://:5", "tcp://*:70000", "ipc://", "udp://x:1"]
)
def test_what_cannot_be_bound(endpoint):
    with pytest.raises(ConfigError, match="--pub"):
        check_endpoint(PUB, endpoint)


def test_where_others_connect():
    """To the bound port, at this machine's own address where it listens on all."""
    assert reachable("tcp://10.0.0.7:0", 4711) == "tcp://10.0.0.7:4711"
    assert reachable("ipc:///tmp/x", 0) == "ipc:///tmp/x"
    assert reachable("tcp://*:0", 4711) == f"tcp://{public_host('*')}:4711"
    assert public_host("localhost") == "localhost"
    assert public_host("0.0.0.0") not in ("0.0.0.0", "*", "")
    assert (port_of("tcp://*:12"), port_of("ipc://x")) == (12, None)


def test_a_port_that_was_chosen_before():
    """Only where the choice was left, and one was made."""
    assert fixed("tcp://*:0", 4711) == "tcp://*:4711"
    assert fixed("tcp://*:0", 0) == "tcp://*:0"
    assert fixed("tcp://*:5557", 4711) == "tcp://*:5557"
    assert fixed("ipc://x0", 0) == fixed("ipc://x0", 5) == "ipc://x0"


@pytest.fixture
def unknown_address() -> Iterator[None]:
    """What was found before is forgotten, and what a test finds is, too."""
    endpoints._own_address.cache_clear()
    yield
    endpoints._own_address.cache_clear()


@pytest.mark.usefixtures("unknown_address")
def test_a_machine_without_an_address(monkeypatch):
    """Is known by its name."""
    monkeypatch.setattr(endpoints, "_FAR_AWAY", ("255.255.255.255", 9))  # a broadcast, which is not allowed
    assert public_host("*") == socket.gethostname()


@pytest.mark.usefixtures("unknown_address")
def test_no_name_server_is_asked(monkeypatch):
    """A request of a client waits for the answer."""
    for name in ("gethostbyname", "getaddrinfo", "getfqdn"):
        monkeypatch.delattr(socket, name)
    assert re.fullmatch(r"[0-9.]+", public_host("*")) or public_host("*") == socket.gethostname()


def test_topics():
    """What they want to know is filled in; other braces stay."""
    assert filled_in("kv@{host}:{port}@{model}{x}", "m", "10.0.0.7", 80) == "kv@10.0.0.7:80@m{x}"
