"""Makes the end of a copy on a device something that a poll can wait for.

A device tells nobody's file descriptor that it is done, so a thread waits for one event after the other and writes
to an eventfd. It holds neither the interpreter's lock nor a core meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import threading
from queue import SimpleQueue

from .card import Ended


class Waiter:
    """Readable (fileno) when something that is waited for has ended since `clear`."""

    def __init__(self) -> None:
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._awaited: SimpleQueue[Ended] = SimpleQueue()
        threading.Thread(target=self._wait, name="device", daemon=True).start()

    def fileno(self) -> int:
        return self._fd

    def watch(self, ended: Ended) -> None:
        self._awaited.put(ended)

    def clear(self) -> None:
        """Be readable no more. To be called before looking what has ended, so that nothing is missed."""
        with contextlib.suppress(BlockingIOError):  # nothing has ended
            os.eventfd_read(self._fd)

    def _wait(self) -> None:
        while True:
            self._awaited.get().wait()
            os.eventfd_write(self._fd, 1)
