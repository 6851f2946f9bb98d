"""JSON values: writing them, and walking through those of clients, however deep, no further than is needed.

Without recursion, for the depth is a client's choice; what only asks whether a value is small stops when it is not.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any


def to_json(value: Any) -> str:
    """A value as JSON without spaces."""
    return json.dumps(value, separators=(",", ":"))


def strings(value: Any) -> Iterator[str]:
    """All strings in a value, names of members included."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict):
            waiting.extend([*item, *item.values()])
        elif isinstance(item, list):
            waiting.extend(item)


def is_small(value: Any, chars: int, item_chars: int = 8) -> bool:
    """Whether a value is at most so large, where what is in a list or an object counts as so many characters more."""
    left, waiting = chars, [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            left -= len(item)
        elif isinstance(item, list | dict):
            left -= item_chars * len(item)
            if left >= 0:
                waiting.extend(item if isinstance(item, list) else [*item, *item.values()])
        if left < 0:
            return False
    return True


def is_flat(value: Any, depth: int) -> bool:
    """Whether nothing in a value lies deeper than so many levels."""
    level = [value]
    for _ in range(depth):
        level = [
            inner
            for item in level
            if isinstance(item, list | dict)
            for inner in (item.values() if isinstance(item, dict) else item)
        ]
        if not level:
            return True
    return False
