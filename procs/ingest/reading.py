"""From the text of an answer to what it consists of: reasoning first, then content and calls.

A Speech says how the answers to one request are to be read, a Reading is one answer that is being read. Knows no JSON
of answers and no tokens but the one that ends a thought. Who calls: parts.py.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from .reasoning import read_reasoning
from .tools.deltas import Delta, Deltas
from .tools.format import CallFormat
from .tools.reader import CallReader
from .tools.source import Source, Steps


@dataclass(frozen=True, slots=True)
class Speech:
    """How answers are read. `form` is the format of calls, None if they are not looked for; `names` may be called.

    `thinks`: a thought may come first; `opened`: the prompt has begun it. `thought_end` is the token that ends it, None
    if it is spelled with several. `markers` are control tokens that must be in the text, for all that clients see none.
    """

    form: CallFormat | None = None
    names: Collection[str] = ()
    thinks: bool = False
    opened: bool = False
    thought_end: int | None = None
    markers: tuple[int, ...] = ()

    def reasoning_tokens(self, generated: bytes | bytearray, thought: bool) -> int | None:
        """How many of the tokens (int32) of an answer were a thought and its marks; None if that cannot be said."""
        if not self.thinks or self.thought_end is None:
            return None
        ids = np.frombuffer(generated, "<i4")
        ends = np.flatnonzero(ids == self.thought_end)
        return 0 if not thought else int(ends[0]) + 1 if len(ends) else len(ids)


class Reading:
    """One answer. `thought`: there is reasoning; `called`: it has calls, and the last of them is complete."""

    def __init__(self, speech: Speech) -> None:
        self._speech = speech
        self._source = Source()
        self._deltas = Deltas()
        self._calls = None
        if speech.form is not None:
            self._calls = CallReader(self._source, self._deltas, speech.form, speech.names)
        self.thought = False
        self._steps = self._read()

    @property
    def called(self) -> bool:
        return self._deltas.calls > 0 and self._calls is not None and self._calls.complete

    def take(self, text: str, last: bool) -> list[Delta]:
        """What is certain now that `text` has come; with the last text, all the rest."""
        self._source.add(text)
        self._source.ended = last
        next(self._steps, None)
        return self._deltas.take()

    def _read(self) -> Steps[None]:
        if self._speech.thinks:
            self.thought = yield from read_reasoning(self._source, self._deltas, self._speech.opened)
        if self._calls is not None:
            yield from self._calls.read()
        while True:
            self._deltas.content(self._source.rest())
            yield
