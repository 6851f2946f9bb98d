"""One poll over everything the launcher waits for: wires, pipes, process handles and signals.

It knows no process: a source that becomes readable calls its callback, so does a time that comes, and `until` returns
as soon as its condition holds. Between events the launcher uses no CPU. Signals become such a source in StopSignals.
"""

from __future__ import annotations

import heapq
import itertools
import signal
import socket
import time
from collections.abc import Callable
from typing import Any

import zmq

Source = Any
"""A file descriptor or a ZeroMQ socket."""

_STOP = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class EventLoop:
    def __init__(self) -> None:
        self._poller = zmq.Poller()
        self._callbacks: dict[Source, Callable[[], None]] = {}
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()  # timers of the same time go by these

    def add(self, source: Source, callback: Callable[[], None]) -> None:
        """Call `callback` whenever `source` can be read or has been closed at its other end."""
        self._callbacks[source] = callback
        self._poller.register(source, zmq.POLLIN)

    def remove(self, source: Source) -> None:
        """Forget a source; must come before it is closed, since its number will be used again."""
        if self._callbacks.pop(source, None) is not None:
            self._poller.unregister(source)

    def after(self, delay_s: float, callback: Callable[[], None]) -> None:
        """Call `callback` once, so many seconds from now."""
        heapq.heappush(self._timers, (time.monotonic() + delay_s, next(self._numbers), callback))

    def forget_timers(self) -> None:
        """Call nothing any more of what was to be called later."""
        self._timers.clear()

    def until(self, done: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Serve events until `done()` holds; false if that took longer than `timeout_s`."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not done():
            if deadline is not None and time.monotonic() >= deadline:
                return False
            self._serve(deadline)
        return True

    def _serve(self, deadline: float | None) -> None:
        """Wait for the next event, at most until the deadline, and call what there is to call."""
        times = [timer[0] for timer in self._timers[:1]] + ([] if deadline is None else [deadline])
        left_ms = (min(times) - time.monotonic()) * 1000 if times else None
        # Rounded up: a poll of 0 ms for the last fraction of one would spin.
        for source, _ in self._poller.poll(None if left_ms is None else max(0, int(left_ms) + 1)):
            callback = self._callbacks.get(source)
            if callback is not None:  # an earlier callback of this round may have removed it
                callback()
        now_s = time.monotonic()
        while self._timers and self._timers[0][0] <= now_s:
            heapq.heappop(self._timers)[2]()


class StopSignals:
    """Catches the signals that ask a server to stop, from now until `close`. Main thread only.

    The handlers do nothing; the numbers arrive on a file descriptor.
    """

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
