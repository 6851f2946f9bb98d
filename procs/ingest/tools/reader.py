"""Reads calls from a model's text: content, calls that begin and pieces of arguments, each as soon as it is certain.

What turns out to be no call, or calls a function that the request does not have, is content as it was written. White
space around calls is dropped. Who calls: ../reading.py.
"""

from __future__ import annotations

from collections.abc import Collection

from .deltas import Deltas
from .format import CallFormat
from .held import Held
from .json_text import Malformed, parsed, read_value
from .source import Source, Steps

_SEPARATORS = ",;"


class CallReader:
    """The reader of one answer. `complete`: the arguments of the last call, if there is one, are all there."""

    def __init__(self, source: Source, deltas: Deltas, form: CallFormat, names: Collection[str]) -> None:
        """`names` are the functions that may be called."""
        self._source = source
        self._deltas = deltas
        self._form = form
        self._names = names
        self._held = Held(source)
        self._after_arguments = False
        self.complete = True

    def read(self) -> Steps[None]:
        """Read until the text ends."""
        if self._form.bare:
            yield from self._bare()
        while True:
            found, kept = yield from self._source.pass_to(self._form.opening, self._deltas.content)
            if not found:
                if kept.strip() or not self._deltas.calls:
                    self._deltas.content(kept)
                return
            self._held.text = kept + self._form.opening
            yield from self._group()

    def _bare(self) -> Steps[None]:
        """Calls at the beginning of the text, without a marker."""
        yield from self._held.space()
        if (yield from self._source.peek()) == "{":
            yield from self._group(bare=True)
        else:
            self._source.put_back(self._held.text)

    def _group(self, bare: bool = False) -> Steps[None]:
        """The calls after an opening marker. What cannot belong to them ends them."""
        self._after_arguments = False
        try:
            yield from self._held.space()
            yield from self._held.optional("[")
            yield from self._call(bare)
            while (yield from self._held.optional(_SEPARATORS)):
                yield from self._call(bare)
            yield from self._held.optional("]")
            yield from self._end()
        except Malformed:
            # A call whose arguments are there may be cut off in what follows them: that is no text.
            if not (self._after_arguments and self._source.ended and not (yield from self._source.peek())):
                self._deltas.content(self._held.text)

    def _end(self) -> Steps[None]:
        """The closing marker, if the format has one; its beginning will do where the text is cut off."""
        closing = self._form.closing
        if not (yield from self._source.literal(closing)):
            if not (self._source.ended and self._source.begins(closing)):
                raise Malformed
            self._source.rest()
        yield from self._held.space()

    def _call(self, bare: bool) -> Steps[None]:
        """The object of one call, its members in any order. One without a marker must begin with the name."""
        held = self._held
        name: str | None = None
        arguments: str | None = None
        self._after_arguments = False
        yield from held.one("{")
        while True:
            key = yield from held.string()
            yield from held.one(":")
            if key == "name" and name is None:
                name = yield from self._name()
            elif bare and name is None:
                raise Malformed
            elif key in self._form.arguments and arguments is None:
                arguments = yield from self._arguments(name)
            else:
                yield from held.value()
            if name is not None and arguments:
                self._whole(name, arguments)
                arguments = ""
            if not (yield from held.optional(",")):
                break
        closed = yield from held.optional("}")
        if name is None or not (closed or self._after_arguments):
            raise Malformed
        if arguments is None:
            self._whole(name, "{}")
        held.text = ""

    def _name(self) -> Steps[str]:
        name = yield from self._held.string()
        if name not in self._names:
            raise Malformed
        return name

    def _arguments(self, name: str | None) -> Steps[str]:
        """Arguments: streamed if the name is known and they are an object, which leaves ""; else as a whole.

        Some models write the object as JSON in a string, and null for none.
        """
        if name is not None and (yield from self._source.peek()) == "{":
            self._begin(name)
            yield from read_value(self._source, self._deltas.arguments)
            self.complete = self._after_arguments = True
            yield from self._held.space()
            return ""
        value = yield from self._held.value()
        if value.startswith('"'):
            value = str(parsed(value)).strip()
        if value == "null":
            return "{}"
        if not value.startswith("{"):
            raise Malformed
        return value

    def _whole(self, name: str, arguments: str) -> None:
        """A call whose arguments were held until now."""
        self._begin(name)
        self._deltas.arguments(arguments)
        self.complete = self._after_arguments = True

    def _begin(self, name: str) -> None:
        self._held.text = ""
        self.complete = False
        self._deltas.begin(self._form.new_id(), name)
