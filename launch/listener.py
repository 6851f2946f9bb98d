"""Where HTTP is listened for: one port or path, bound by the launcher before anything else and passed on to ingest.

So a port that is taken is the first thing an operator hears about, and no client is refused while ingest
loads its tokenizer: connections wait in the backlog.

Several ingests have a socket each on the port (SO_REUSEPORT): the kernel deals connections out by a hash of their
addresses, as evenly as chance does. From one socket for all, whoever wakes first takes all that wait: of 64
connections that came together up to 64 (docs/experiments.md). The launcher holds every socket, too, so that what
waits in one outlives its ingest. A Unix socket cannot be bound twice: there all ingests accept from the same one.

Here too: the limit on open files, of which each connection is one.
"""

from __future__ import annotations

import errno
import os
import resource
import socket
import stat
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from ..common.config import Config
from ..common.errors import ConfigError, ResourceError
from ..common.machine import listen_backlog
from ..ipc.wire import MAX_PATH_BYTES


class Listener:
    """The listening sockets of a server, one for each ingest."""

    def __init__(self, sockets: Sequence[socket.socket]) -> None:
        self._sockets = sockets
        self._path = sockets[0].getsockname() if sockets[0].family == socket.AF_UNIX else None
        self._withdrawn = False

    def of_ingest(self, index: int) -> socket.socket:
        """The socket that an ingest accepts from."""
        return self._sockets[index]

    @property
    def url(self) -> str:
        """Where clients find the server."""
        name = self._sockets[0].getsockname()
        if self._path is not None:
            return f"unix:{name}"
        host = f"[{name[0]}]" if self._sockets[0].family == socket.AF_INET6 else name[0]
        return f"http://{host}:{name[1]}"

    @property
    def port(self) -> int | None:
        """The TCP port, None for a Unix socket."""
        return None if self._path is not None else int(self._sockets[0].getsockname()[1])

    def withdraw(self) -> None:
        """Leave the path of a Unix socket to the next server, while this one ends; a port stays taken."""
        if self._path is not None and not self._withdrawn:
            self._withdrawn = True
            Path(self._path).unlink(missing_ok=True)

    def release(self, index: int) -> None:
        """Nobody accepts from an ingest's socket any more: refuse who comes. A Unix socket is the others', too."""
        if self._path is None:
            self._sockets[index].close()

    def close(self) -> None:
        """Stop listening; a Unix socket's path goes too. May be called again."""
        self.withdraw()
        for one in self._sockets:
            one.close()


def bind(config: Config) -> Listener:
    """Listen where the configuration says. Raises ResourceError, or ConfigError for a bad host."""
    if config.unix_socket is not None:
        return Listener([_bind_unix(Path(config.unix_socket))] * config.ingest_procs)
    return Listener(_bind_tcp(config.host, config.port, config.ingest_procs))


def _bind_tcp(host: str, port: int, count: int) -> list[socket.socket]:
    if not host:  # the system would take it for every address: too much for a variable that was not set
        raise ConfigError("--host must not be empty; 0.0.0.0 is every address")
    try:
        family, *_, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except (socket.gaierror, UnicodeError) as error:
        raise ConfigError(f"--host {host!r} is no address of this machine: {error}") from None
    try:
        return _share_port(where[:2], family, count)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ResourceError(f"port {port} on {host} is taken: stop what listens there, or choose --port") from None
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise ResourceError(f"cannot listen on {host} port {port}: {reason}") from None


def _share_port(where: tuple[Any, ...], family: int, count: int) -> list[socket.socket]:
    """So many sockets that listen on a port that nobody else has.

    The first takes the port for itself and lets the others in afterwards: else a second server of the same user would
    get a share of the connections in place of an error.
    """
    with ExitStack() as failed:
        sockets: list[socket.socket] = []
        for _ in range(count):
            one = failed.enter_context(socket.socket(family))
            # A restart must not wait for the old connections to time out.
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            if not sockets:
                one.bind(where)
            if count > 1:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            if sockets:
                one.bind(sockets[0].getsockname())
            sockets.append(one)
        for one in sockets:
            one.listen(listen_backlog())
        failed.pop_all()
    return sockets


def _bind_unix(path: Path) -> socket.socket:
    if len(os.fsencode(path)) > MAX_PATH_BYTES:
        raise ConfigError(f"--unix-socket {path} is longer than {MAX_PATH_BYTES} bytes")
    listener = socket.socket(socket.AF_UNIX)
    try:
        _remove_stale(path)
        listener.bind(str(path))
        path.chmod(0o600)
        listener.listen(listen_backlog())
    except OSError as error:
        listener.close()
        raise ResourceError(f"cannot listen on --unix-socket {path}: {error.strerror}") from None
    return listener


def _remove_stale(path: Path) -> None:
    """Remove the socket of a server that is dead; anything else at the path stays, and binding fails."""
    if not path.exists() or not stat.S_ISSOCK(path.stat().st_mode):
        return
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()


def raise_file_limit(least: int) -> None:
    """Let this process and its children open as many files as the hard limit allows.

    Raises ResourceError if that is fewer than `least`.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= hard < least:
        raise ResourceError(
            f"only {hard} files may be open, and this server needs {least}: raise the limit (ulimit -n)"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
