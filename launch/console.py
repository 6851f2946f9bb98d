"""What the launcher says to its operator: whole lines, written at once, never a reason to fail."""

import os

from ..common.log import one_line

STDOUT, STDERR = 1, 2


def say(line: str) -> None:
    """A line on standard error, and only one: what died may have died of a client's words."""
    write_line(STDERR, one_line(line).encode(errors="backslashreplace"))


def announce(line: str) -> None:
    """A line on standard output, which carries nothing but what a program may wait for."""
    write_line(STDOUT, line.encode(errors="backslashreplace"))


def write_line(fd: int, line: bytes) -> None:
    """Write a line past Python's buffers. A reader that has gone, or a dead terminal, changes nothing."""
    rest = line + b"\n"
    try:
        while rest:
            rest = rest[os.write(fd, rest) :]
    except OSError:
        return
