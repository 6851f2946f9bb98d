"""Which events of a batch can be told when the batch as a whole cannot be encoded.

What cannot be told is left out, and so is what stands on it: blocks behind a block of which nobody has heard, and the
removal of such blocks. So readers know less than is cached, and nothing that is wrong. The stream asks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ...ipc.events import Cleared, KvEvent, Removed, Stored


class Unsayable:
    """Remembers the digests of blocks that were left out, as long as they are cached."""

    def __init__(self) -> None:
        self._digests: set[bytes] = set()

    def __bool__(self) -> bool:
        """Whether later events may need to be looked at."""
        return bool(self._digests)

    def without(self, events: Sequence[KvEvent], can_be_said: Callable[[KvEvent], bool]) -> list[KvEvent]:
        """What is left of these events."""
        return list(self._left(events, can_be_said))

    def _left(self, events: Sequence[KvEvent], can_be_said: Callable[[KvEvent], bool]) -> Iterator[KvEvent]:
        for event in events:
            match event:
                case Cleared():
                    self._digests.clear()
                    yield event
                case Stored(digests, parent):
                    if parent in self._digests or not can_be_said(event):
                        self._digests.update(digests)
                    else:
                        yield event
                case Removed(digests, medium):
                    told = tuple(digest for digest in digests if digest not in self._digests)
                    self._digests.difference_update(digests)
                    if told:
                        yield Removed(told, medium)
