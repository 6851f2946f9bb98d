"""Text that comes in pieces, read as if it were whole: a step that needs more of it waits in a `yield`.

Steps are generators that are resumed when a piece has been added, or the text has ended. Each takes what is its own by
looking at characters alone, never at where a piece ends, so any cutting of a text is read the same way.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from typing import NamedTuple, TypeVar

T = TypeVar("T")
Steps = Generator[None, None, T]
Sink = Callable[[str], None]


class Passed(NamedTuple):
    """How `Source.pass_to` ended: whether the marker was found, and what was kept back before it or the end."""

    found: bool
    kept: str


class Source:
    """The text that has come and has not been taken."""

    __slots__ = ("_at", "_text", "ended")

    def __init__(self) -> None:
        self._text = ""
        self._at = 0
        self.ended = False

    def add(self, piece: str) -> None:
        self._text = self._text[self._at :] + piece
        self._at = 0

    def put_back(self, text: str) -> None:
        """Have a text that was taken come again."""
        self._text = text + self._text[self._at :]
        self._at = 0

    def rest(self) -> str:
        """Take all that is there."""
        found, self._text, self._at = self._text[self._at :], "", 0
        return found

    def peek(self) -> Steps[str]:
        """The next character, which is not taken; "" at the end."""
        while self._at == len(self._text) and not self.ended:
            yield
        return self._text[self._at : self._at + 1]

    def char(self) -> str:
        """Take the character that `peek` has shown."""
        self._at += 1
        return self._text[self._at - 1]

    def run(self, pattern: re.Pattern[str], sink: Sink) -> Steps[None]:
        """Take as much as there is of what `pattern` matches, which is any number of things, each sure to be whole."""
        while True:
            match = pattern.match(self._text, self._at)
            assert match is not None
            if match[0]:
                self._at = match.end()
                sink(match[0])
            if self._at < len(self._text) or self.ended:
                return
            yield

    def literal(self, text: str) -> Steps[bool]:
        """Take a text if it comes next."""
        while True:
            if self._text.startswith(text, self._at):
                self._at += len(text)
                return True
            if self.ended or not self.begins(text):
                return False
            yield

    def begins(self, text: str) -> bool:
        """Whether a text begins with all that is there."""
        return text.startswith(self._text[self._at :])

    def pass_to(self, marker: str, sink: Sink) -> Steps[Passed]:
        """Give the sink all text before a marker, and take the marker.

        What is at the end of the text so far is kept back as long as it may be the beginning of the marker, with the
        white space before it: such white space is kept from the sink for good.
        """
        while True:
            place = self._text.find(marker, self._at)
            found = place >= 0
            end = self._before_space(place) if found else self._before_marker(marker)
            if end > self._at:
                sink(self._text[self._at : end])
            if found:
                self._at = place + len(marker)
                return Passed(True, self._text[end:place])
            self._at = end
            if self.ended:
                return Passed(False, self.rest())
            yield

    def _before_space(self, end: int) -> int:
        return self._at + len(self._text[self._at : end].rstrip())

    def _before_marker(self, marker: str) -> int:
        """Where at the end of the text a marker, or white space before one, may have begun."""
        here = len(self._text)
        for size in range(min(len(marker) - 1, here - self._at), 0, -1):
            if self._text.endswith(marker[:size]):
                return self._before_space(here - size)
        return self._before_space(here)
