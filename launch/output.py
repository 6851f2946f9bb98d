"""What a child prints: every line goes on to our standard error as it is, and the last ones are kept."""

from __future__ import annotations

import os
from collections import deque

from .console import STDERR, write_line

_TAIL_LINES = 20
_READ_BYTES = 1 << 16
_MAX_LINE_BYTES = 1 << 14
_MAX_READS_AT_THE_END = 64


class Output:
    """The reading end of the pipe that is a child's standard output and error."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._rest = b""
        self.tail: deque[str] = deque(maxlen=_TAIL_LINES)

    def fileno(self) -> int:
        return self._fd

    def pump(self) -> bool:
        """Pass on what has come, at most 64 KiB; false once the pipe has ended."""
        data = self._read()
        if data:
            self._pass_on(data)
        return data != b""

    def finish(self) -> None:
        """Pass on what is left, when the child has ended. A grandchild that goes on writing is not awaited."""
        for _ in range(_MAX_READS_AT_THE_END):
            data = self._read()
            if not data:
                break
            self._pass_on(data)
        if self._rest:
            self._pass_on(b"\n")

    def _read(self) -> bytes | None:
        """What has come; None if that is nothing yet, empty at the end of the pipe."""
        try:
            return os.read(self._fd, _READ_BYTES)
        except BlockingIOError:
            return None

    def _pass_on(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _MAX_LINE_BYTES:
            lines.append(self._rest)
            self._rest = b""
        for line in lines:
            write_line(STDERR, line)
            self.tail.append(line.decode(errors="replace"))
