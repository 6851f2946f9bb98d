"""What an answer consists of when it is more than text, in pieces as they become certain. Knows no format of calls."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Content:
    """Text of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Text that the model wrote for itself before it answered."""

    text: str


@dataclass(frozen=True, slots=True)
class CallBegin:
    """A call of a function; `index` counts the calls of an answer from 0. Its arguments follow."""

    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class Arguments:
    """The next piece of a call's arguments, which are JSON as the model wrote it."""

    index: int
    text: str


Delta = Content | Reasoning | CallBegin | Arguments


class Deltas:
    """Collects deltas; what follows its like is joined to it."""

    def __init__(self) -> None:
        self._found: list[Delta] = []
        self.calls = 0

    def content(self, text: str) -> None:
        last = self._found[-1] if self._found else None
        if isinstance(last, Content):
            self._found[-1] = Content(last.text + text)
        elif text:
            self._found.append(Content(text))

    def reasoning(self, text: str) -> None:
        last = self._found[-1] if self._found else None
        if isinstance(last, Reasoning):
            self._found[-1] = Reasoning(last.text + text)
        elif text:
            self._found.append(Reasoning(text))

    def begin(self, id: str, name: str) -> None:  # noqa: A002 (the API's word)
        self._found.append(CallBegin(self.calls, id, name))
        self.calls += 1

    def arguments(self, text: str) -> None:
        """More arguments of the call that was begun last."""
        last = self._found[-1] if self._found else None
        if isinstance(last, Arguments):
            self._found[-1] = Arguments(last.index, last.text + text)
        elif text:
            self._found.append(Arguments(self.calls - 1, text))

    def take(self) -> list[Delta]:
        """All that has been collected since the last time."""
        found, self._found = self._found, []
        return found
