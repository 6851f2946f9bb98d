"""The processes that ask, seen from the one that measures: they are started once and get orders, load after load."""

from __future__ import annotations

import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from types import TracebackType

from ...common.errors import ConfigError, ServerError
from .load import Load, Target, orders
from .record import Record

_PROGRAM = "fourstroke.launch.bench.client"
_BEGIN_AFTER_S = 0.1
"""Time for all clients to read their orders and to begin together."""

_STOP_S = 5.0

_DIED = "a client process died; its last words are above"


def require(package: str) -> None:
    """Raise ConfigError unless a package of the extra `bench` is installed."""
    if find_spec(package) is None:
        raise ConfigError(f"this needs the package {package}: pip install 'fourstroke[bench]'")


class Clients:
    """So many client processes. As a context it ends them."""

    def __init__(self, count: int) -> None:
        require("aiohttp")
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._processes = [
            subprocess.Popen(
                [sys.executable, "-P", "-m", _PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            for _ in range(count)
        ]
        for process in self._processes:
            threading.Thread(target=self._read, args=(process,), daemon=True).start()

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    def run(self, target: Target, load: Load) -> Iterator[Record]:
        """Put a load on a server: the records of its requests, as they end. Raises ServerError if a client dies."""
        busy = 0
        for process, order in zip(
            self._processes,
            orders(target, load, len(self._processes), time.monotonic() + _BEGIN_AFTER_S),
            strict=False,
        ):
            _send(process, order.line)
            busy += 1
        while busy:
            line = self._lines.get()
            if line is None:
                raise ServerError(_DIED)
            if line:
                yield Record.read(line)
            else:
                busy -= 1

    def __enter__(self) -> Clients:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            assert process.stdin is not None
            process.wait(_STOP_S)
            with suppress(BrokenPipeError):  # an order that a dead client has not taken is written once more
                process.stdin.close()


def _send(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    try:
        process.stdin.write(line + "\n")
        process.stdin.flush()
    except BrokenPipeError:
        raise ServerError(_DIED) from None
