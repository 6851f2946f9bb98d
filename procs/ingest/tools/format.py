"""How a model writes calls, as data: the markers, the members of a call's JSON object, and what stands between calls.

A format is read by reader.py, enforced by grammar.py and taught by wording.py; each has a file of its own.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass


def long_id() -> str:
    """The id of a call, as OpenAI's look."""
    return f"call_{uuid.uuid4().hex[:24]}"


@dataclass(frozen=True, slots=True)
class CallFormat:
    """Calls are JSON objects, one or a list of them, between `opening` and `closing` ("" if nothing closes them).

    `bare`: a text that begins with such an object needs no marker. `arguments` are the names that the member with the
    arguments may have, first the usual one. Calls are written as `head`, then their objects, with `between` between
    them, then `tail`.
    """

    name: str
    opening: str
    closing: str
    bare: bool
    arguments: tuple[str, ...]
    head: str
    between: str
    tail: str
    new_id: Callable[[], str] = long_id

    @property
    def one_by_one(self) -> bool:
        """Whether each call has markers of its own."""
        return self.opening in self.between

    def written(self, calls: Sequence[str]) -> str:
        """Calls, of which the objects are given as JSON, as the model would write them."""
        return f"{self.head}{self.between.join(calls)}{self.tail}"
