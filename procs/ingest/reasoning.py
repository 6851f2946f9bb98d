"""Reads what a model thinks before it answers: <think>...</think> at the beginning of its text.

The chat template may have opened the thought already, or the model opens it, or not. White space beside the marks is
dropped. Who calls: reading.py.
"""

from __future__ import annotations

import re

from .tools.deltas import Deltas
from .tools.source import Source, Steps

OPENING, CLOSING = "<think>", "</think>"

_SPACE = re.compile(r"\s*")


def is_opened(prompt: str) -> bool:
    """Whether the end of a prompt has opened a thought."""
    return prompt.rstrip().endswith(OPENING)


def read_reasoning(source: Source, deltas: Deltas, opened: bool) -> Steps[bool]:
    """Read a thought, if the text begins with one; true if it did. What follows stays in the source."""
    space: list[str] = []
    yield from source.run(_SPACE, space.append)
    if not opened and not (yield from source.literal(OPENING)):
        source.put_back("".join(space))
        return False
    yield from source.run(_SPACE, space.append)
    found, kept = yield from source.pass_to(CLOSING, deltas.reasoning)
    if not found:
        deltas.reasoning(kept)
    yield from source.run(_SPACE, space.append)
    return True
