"""Finds stop strings in text that comes in pieces, and keeps back only what may still become one.

Every stop string is followed by the automaton of Knuth, Morris and Pratt ("Fast pattern matching in strings",
1977): its state is the length of the longest end of the text that begins the string. So the cost of a character
does not depend on how much text there is, and the longest state is how much must be kept back. Knows no tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache


class StopMatcher:
    """The stop strings of one request.

    The match that ends first ends the text. Of several that end at the same character the longest counts: so
    no part of a stop string is ever sent, and the order in which the strings are given does not matter.
    """

    __slots__ = ("_held", "_include", "_patterns")

    def __init__(self, stops: Sequence[str], include: bool) -> None:
        """`include`: a stop string that is found stays in the text."""
        self._patterns = [_Pattern(stop) for stop in sorted(stops, key=len, reverse=True)]
        self._include = include
        self._held = ""

    def push(self, text: str, may_stop: bool) -> tuple[str, str | None]:
        """The text that may be sent now that `text` has come, and the stop string that ended it, if one did.

        Unless `may_stop`, strings that are complete with this text are passed over.
        """
        found, end = None, len(text) + 1
        for pattern in self._patterns:
            here = pattern.advance(text, may_stop)
            if here is not None and here < end:
                found, end = pattern.stop, here
        window = self._held + text
        if found is not None:
            cut = len(self._held) + end - (0 if self._include else len(found))
            self._held = ""
            return window[:cut], found
        cut = len(window) - max([pattern.matched for pattern in self._patterns])
        self._held = window[cut:]
        return window[:cut], None

    def flush(self) -> str:
        """The text that was kept back, now that no stop string will come any more."""
        held, self._held = self._held, ""
        return held


class _Pattern:
    """One stop string. `matched`: so many characters at its beginning are the end of the text so far."""

    __slots__ = ("_borders", "matched", "stop")

    def __init__(self, stop: str) -> None:
        self.stop = stop
        self.matched = 0
        self._borders = _borders(stop)

    def advance(self, text: str, may_stop: bool) -> int | None:
        """Take in more text; where in it, if it may stop, the first occurrence of the string ends."""
        stop, borders, matched = self.stop, self._borders, self.matched
        if not matched and stop[0] not in text:
            return None
        for end, char in enumerate(text, 1):
            while matched and stop[matched] != char:
                matched = borders[matched]
            if stop[matched] == char:
                matched += 1
            if matched == len(stop):
                if may_stop:
                    return end
                matched = borders[matched]
        self.matched = matched
        return None


@lru_cache(maxsize=1024)
def _borders(stop: str) -> tuple[int, ...]:
    """For each length, the longest proper end of the string's beginning of that length that also begins it."""
    borders, border = [0, 0], 0
    for char in stop[1:]:
        while border and stop[border] != char:
            border = borders[border]
        if stop[border] == char:
            border += 1
        borders.append(border)
    return tuple(borders)
