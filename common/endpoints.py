"""ZeroMQ endpoints of several ranks: where each one is, whether two ranges overlap, and what others connect to.

Pure but for one look at this machine's own address, which waits for nobody. Who binds and who connects is elsewhere.
"""

from __future__ import annotations

import functools
import re
import socket

from .errors import ConfigError

_TCP = re.compile(r"tcp://(.+):([0-9]{1,5})")
_FAR_AWAY = ("192.0.2.1", 9)
"""An address that is nobody's (RFC 5737)."""

_ANY_HOST = ("*", "0.0.0.0", "[::]", "::")


def check_endpoint(flag: str, endpoint: str) -> None:
    """Refuse what ZeroMQ could not bind. Raises ConfigError, which names the flag."""
    matched = _TCP.fullmatch(endpoint)
    if endpoint.startswith(("ipc://", "inproc://")) and len(endpoint.split("://")[1]):
        return
    if not matched or int(matched[2]) > 65535:
        raise ConfigError(f"{flag} must be like tcp://HOST:PORT, tcp://*:0 or ipc://PATH; got {endpoint!r}")


def port_of(endpoint: str) -> int | None:
    """The port of a TCP endpoint; 0 is any free one."""
    matched = _TCP.fullmatch(endpoint)
    return int(matched[2]) if matched else None


def of_rank(endpoint: str, rank: int) -> str:
    """Where a rank has its own: a port further for each rank (0 stays 0), or a name of its own behind the first."""
    matched = _TCP.fullmatch(endpoint)
    if matched is None:
        return endpoint if rank == 0 else f"{endpoint}_dp{rank}"
    port = int(matched[2])
    return f"tcp://{matched[1]}:{port + rank if port else 0}"


def fixed(endpoint: str, port: int) -> str:
    """An endpoint that leaves the choice of its port, with a port that was chosen before; 0 is none."""
    return f"{endpoint.removesuffix('0')}{port}" if port and port_of(endpoint) == 0 else endpoint


def check_apart(first_flag: str, first: str, second_flag: str, second: str, ranks: int) -> None:
    """Refuse two endpoints of which the ranks' ranges overlap. Raises ConfigError, which names both."""
    ports = [port for port in (port_of(first), port_of(second)) if port]
    if len(ports) == 2 and max(ports) + ranks - 1 > 65535:
        raise ConfigError(f"{first_flag} {first} or {second_flag} {second} leaves no ports for {ranks} ranks")
    alike = first == second and port_of(first) != 0
    if alike or (len(ports) == 2 and abs(ports[0] - ports[1]) < ranks):
        raise ConfigError(
            f"{first_flag} {first} and {second_flag} {second} overlap: each of the {ranks} ranks has the port of "
            f"its number behind them, so they must be {ranks} or more apart"
        )


def reachable(endpoint: str, port: int) -> str:
    """What others connect to, where an endpoint was bound to a port of which it may have left the choice."""
    matched = _TCP.fullmatch(endpoint)
    return f"tcp://{public_host(matched[1])}:{port}" if matched else endpoint


def public_host(host: str) -> str:
    """A host by which others know this machine: its own address where it listens on all."""
    if host not in _ANY_HOST:
        return host
    return _own_address()


@functools.cache
def _own_address() -> str:
    """The address from which this machine speaks to others, or its name if it speaks to none.

    Nothing is sent: a UDP socket that is connected knows its own end from the routes. The name server is not asked: it
    may take seconds to answer, and often it has 127.0.1.1.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_FAR_AWAY)
        except OSError:
            return socket.gethostname()
        address: str = probe.getsockname()[0]
    return address


def filled_in(topic: str, model: str, host: str, port: int) -> str:
    """A topic with what it wants to know of the server in the places of {model}, {host} and {port}."""
    values = {"{model}": model, "{host}": public_host(host), "{port}": str(port)}
    for name, value in values.items():
        topic = topic.replace(name, value)
    return topic
