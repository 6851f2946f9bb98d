"""The listening HTTP socket, bound by the launcher before anything is started and passed on to ingest.

So a port that is taken is the first thing an operator hears about, and no client is refused while ingest
loads its tokenizer: connections wait in the backlog. Here too: the limit on open files, of which each
connection is one.
"""

from __future__ import annotations

import errno
import os
import resource
import socket
import stat
from pathlib import Path

from ..common.config import Config
from ..common.errors import ConfigError, ResourceError
from ..common.machine import listen_backlog
from ..ipc.wire import MAX_PATH_BYTES


def bind(config: Config) -> socket.socket:
    """A listening socket where the configuration says. Raises ResourceError, or ConfigError for a bad host."""
    if config.unix_socket is not None:
        return _bind_unix(Path(config.unix_socket))
    return _bind_tcp(config.host, config.port)


def _bind_tcp(host: str, port: int) -> socket.socket:
    if not host:  # the system would take it for every address: too much for a variable that was not set
        raise ConfigError("--host must not be empty; 0.0.0.0 is every address")
    try:
        family, *_, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except (socket.gaierror, UnicodeError) as error:
        raise ConfigError(f"--host {host!r} is no address of this machine: {error}") from None
    try:
        # create_server sets SO_REUSEADDR: a restart must not wait for the old connections to time out.
        return socket.create_server(where[:2], family=family, backlog=listen_backlog())
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ResourceError(f"port {port} on {host} is taken: stop what listens there, or choose --port") from None
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise ResourceError(f"cannot listen on {host} port {port}: {reason}") from None


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


def url(listener: socket.socket) -> str:
    """Where clients find a listening socket."""
    name = listener.getsockname()
    if listener.family == socket.AF_UNIX:
        return f"unix:{name}"
    host = f"[{name[0]}]" if listener.family == socket.AF_INET6 else name[0]
    return f"http://{host}:{name[1]}"


def close(listener: socket.socket) -> None:
    """Stop listening; a Unix socket's path goes too."""
    if listener.fileno() < 0:
        return
    path = listener.getsockname() if listener.family == socket.AF_UNIX else None
    listener.close()
    if path:
        Path(path).unlink(missing_ok=True)


def raise_file_limit() -> None:
    """Let this process and its children open as many files as the hard limit allows."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
