"""A ring of tokens in memory that one process writes and one other reads.

Layout, 64-bit words then tokens:

    | written | released | (unused words) | token 0 | token 1 | ... | token n-1 |

`written` and `released` count tokens since the start and never fall; the writer alone writes the first,
the reader alone the second. A run of tokens that would cross the end of the ring starts again at its
beginning, so that every run is one contiguous array. A position is what a message carries: the value of
`written` where the run begins. A ring does not wake anybody: the message on the wire does.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..common.errors import BadMessage

Tokens = npt.NDArray[np.int32]

_HEADER_BYTES = 128
_WRITTEN, _RELEASED = 0, 8  # 64 bytes apart: each word has a cache line of its own


def ring_bytes(capacity: int) -> int:
    """The memory that a ring of `capacity` tokens takes."""
    return _HEADER_BYTES + 4 * capacity


class TokenRing:
    """Either end of a ring over zeroed memory of ring_bytes(capacity) bytes, private or shared."""

    def __init__(self, memory: memoryview | bytearray) -> None:
        self._words = np.frombuffer(memory, np.int64, _HEADER_BYTES // 8)
        self._tokens = np.frombuffer(memory, np.int32, offset=_HEADER_BYTES)
        self.capacity = len(self._tokens)

    @property
    def used(self) -> int:
        """Tokens that were written and not yet released, gaps at the end of the ring included."""
        return int(self._words[_WRITTEN] - self._words[_RELEASED])

    def write(self, tokens: Tokens) -> int | None:
        """Append a run of tokens and return its position, or None if there is no room now.

        A run longer than the ring never fits: the caller must not offer one.
        """
        count = len(tokens)
        written, released = int(self._words[_WRITTEN]), int(self._words[_RELEASED])
        place = written % self.capacity
        if place + count > self.capacity:
            gap = self.capacity - place
            if released == written:
                released += gap  # nothing is unread, so the gap takes no room: else a long run would never fit
            written += gap
            place = 0
        if written + count - released > self.capacity:
            return None
        self._tokens[place : place + count] = tokens
        self._words[_WRITTEN] = written + count
        return written

    def take(self, position: int, count: int) -> Tokens:
        """A copy of a run, in the order of writing; what lies before its end is released.

        Raises BadMessage if no such run was written or if it was taken before.
        """
        released, written = int(self._words[_RELEASED]), int(self._words[_WRITTEN])
        if not (count >= 0 and released <= position and position + count <= written):
            raise BadMessage(f"no {count} tokens at {position} in the ring ({released}..{written})")
        place = position % self.capacity
        if place + count > self.capacity:
            raise BadMessage(f"{count} tokens at {position} cross the end of the ring")
        tokens = self._tokens[place : place + count].copy()
        self._words[_RELEASED] = position + count
        return tokens

    def forget(self) -> None:
        """Release all that was written: the messages that say where it lies are void, for one end is another now."""
        self._words[_RELEASED] = self._words[_WRITTEN]
