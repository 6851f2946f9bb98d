"""Takes pieces of JSON from a source and remembers their text until it is certain what they are."""

from __future__ import annotations

from .json_text import SPACE, Malformed, parsed, read_string, read_value
from .source import Source, Steps


class Held:
    """`text` is what has been taken since it was cleared."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.text = ""

    def hold(self, piece: str) -> None:
        self.text += piece

    def space(self) -> Steps[None]:
        yield from self._source.run(SPACE, self.hold)

    def optional(self, chars: str) -> Steps[bool]:
        """Take one of these characters, and white space after it, if one comes next."""
        char = yield from self._source.peek()
        if not char or char not in chars:
            return False
        self.hold(self._source.char())
        yield from self.space()
        return True

    def one(self, char: str) -> Steps[None]:
        """Take a character, and white space after it. Raises Malformed if another comes."""
        if not (yield from self.optional(char)):
            raise Malformed

    def string(self) -> Steps[str]:
        """Take a string, and white space after it. Raises Malformed if there is none."""
        before = len(self.text)
        yield from read_string(self._source, self.hold)
        value = str(parsed(self.text[before:]))
        yield from self.space()
        return value

    def value(self) -> Steps[str]:
        """Take a value, and white space after it; gives its JSON. Raises Malformed if there is none."""
        before = len(self.text)
        yield from read_value(self._source, self.hold)
        value = self.text[before:]
        yield from self.space()
        return value
