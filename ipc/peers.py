"""The other ranks of a group, as processes: wake them, sleep until they wake this one, know whether they live.

A wake-up is one byte to a datagram socket in the server's socket folder; it carries nothing, because what there
is to know lies in shared memory, and so it may be lost or come once too often. That a process has ended the
kernel tells through its pidfd, at once and whatever it died of.
"""

from __future__ import annotations

import math
import os
import select
import socket
import time
from contextlib import suppress
from pathlib import Path

from ..common.errors import ResourceError

_BUFFER = 16


class Peers:
    """Rank `rank` of `size`. Has a fileno(), readable when a peer has rung."""

    def __init__(self, folder: Path, rank: int, size: int) -> None:
        _require_pidfd()
        self._paths = [folder / f"rank{other}" for other in range(size)]
        self._own = self._paths[rank]
        self._own.unlink(missing_ok=True)  # of a process that had this rank and died
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._socket.bind(str(self._own))
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)
        self._pidfds: dict[int, int] = {}

    def fileno(self) -> int:
        return self._socket.fileno()

    def wake(self, rank: int) -> None:
        """Ring once. A full socket rings already, and one that is gone belongs to nobody."""
        with suppress(BlockingIOError, FileNotFoundError, ConnectionRefusedError):
            self._socket.sendto(b"\0", str(self._paths[rank]))

    def drain(self) -> None:
        """Take the rings that have come."""
        with suppress(BlockingIOError):
            while self._socket.recv(_BUFFER):
                pass

    def wait(self, deadline: float) -> bool:
        """Block until a peer rings, a process that was asked about ends, or time is up, which returns false.

        `deadline` is on time.monotonic's clock, in seconds.
        """
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            return False
        for fd, _ in self._poll.poll(math.ceil(1000 * left_s)):
            if fd != self.fileno():
                self._forget(fd)
        self.drain()
        return True

    def alive(self, pid: int) -> bool:
        """Whether a process has not ended, as far as is known. Its end ends the next `wait`."""
        if pid in self._pidfds:
            return True
        try:
            pidfd = os.pidfd_open(pid)
        except ProcessLookupError:
            return False
        if _has_ended(pidfd):
            os.close(pidfd)
            return False
        self._pidfds[pid] = pidfd
        self._poll.register(pidfd, select.POLLIN)
        return True

    def _forget(self, pidfd: int) -> None:
        self._pidfds = {pid: fd for pid, fd in self._pidfds.items() if fd != pidfd}
        self._poll.unregister(pidfd)
        os.close(pidfd)

    def close(self) -> None:
        for pidfd in self._pidfds.values():
            os.close(pidfd)
        self._pidfds.clear()
        self._socket.close()
        self._own.unlink(missing_ok=True)


def _has_ended(pidfd: int) -> bool:
    """A dead process can still be opened as long as its parent has not asked for its exit status."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(0))


def _require_pidfd() -> None:
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError as error:
        raise ResourceError(
            f"ranks cannot watch each other here: pidfd_open: {error.strerror} "
            f"(Linux has it since 5.3; a seccomp profile may forbid it)"
        ) from None
