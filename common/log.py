"""Log lines: one line an event, to standard error, with the time, the process and the level.

A line cannot be forged: control characters in a message, which may come from a client, are shown
escaped, and the lines of a traceback are indented. Prompts and generated text are never logged.
"""

import logging
import sys
import time
from collections.abc import Callable
from types import TracebackType

WARN_EVERY_S = 10.0

_FORMAT = "%(asctime)s.%(msecs)03d %(levelname).1s {name}: %(message)s"
_CONTROL = {code: f"\\x{code:02x}" for code in [*range(32), *range(127, 160)] if code != 9}
_CONTROL |= {0x2028: "\\u2028", 0x2029: "\\u2029"}


_INDENT = "    "

_ErrorInfo = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


def one_line(text: str) -> str:
    """The text with its control characters escaped, so that it neither ends a line nor moves a cursor."""
    return text.translate(_CONTROL)


class _OneLine(logging.Formatter):
    """Escapes control characters in the message; a traceback keeps its lines, none of which looks like one of ours."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (the name is logging's)
        record.message = one_line(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: _ErrorInfo) -> str:  # noqa: N802 (the name is logging's)
        lines = super().formatException(ei).split("\n")
        return "\n".join(_INDENT + one_line(line) for line in lines)


def configure(name: str, level: str = "info") -> logging.Logger:
    """Send this process's log to standard error, each line marked with `name`; return its logger."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_OneLine(_FORMAT.format(name=name), datefmt="%H:%M:%S"))
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)
    return logging.getLogger("fourstroke")


class Seldom:
    """Whether a line about what happens again and again is to be logged: at most once in WARN_EVERY_S."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._due_s = float("-inf")

    def is_due(self) -> bool:
        """Whether the last line is long enough ago. If it is, this is the time of the next one."""
        now = self._clock()
        if now < self._due_s:
            return False
        self._due_s = now + WARN_EVERY_S
        return True
