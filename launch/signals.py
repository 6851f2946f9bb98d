"""Signals as something to read: the handlers do nothing, the numbers arrive on a file descriptor."""

from __future__ import annotations

import signal
import socket

_STOP = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class StopSignals:
    """Catches the signals that ask a server to stop, from now until `close`. Main thread only."""

    def __init__(self) -> None:
        self._read, self._write = socket.socketpair()
        self._read.setblocking(False)
        self._write.setblocking(False)
        self._old_fd = signal.set_wakeup_fd(self._write.fileno(), warn_on_full_buffer=False)
        # SIGHUP stays ignored where nohup wants it so.
        self._old = {number: signal.getsignal(number) for number in _STOP if not _ignored_hangup(number)}
        for number in self._old:
            signal.signal(number, lambda _number, _frame: None)
        self.count = 0

    def fileno(self) -> int:
        return self._read.fileno()

    def read(self) -> list[str]:
        """The names of the stop signals that came since the last call; `count` counts them all."""
        names = [signal.Signals(number).name for number in self._read.recv(4096) if number in self._old]
        self.count += len(names)
        return names

    def close(self) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._old_fd)
        self._read.close()
        self._write.close()


def _ignored_hangup(number: int) -> bool:
    return number == signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN
