"""What one ingest is to be told after an Emit: a Text that grows request by request."""

from __future__ import annotations

import numpy as np

from ...ipc.logprobs import Words, pack
from ...ipc.messages import Ending, Text
from .columns import COUNT, RID
from .request import Piece


class Reply:
    """A Text in the making."""

    __slots__ = ("_counts", "_deltas", "_endings", "_ids", "_logprobs", "_opened", "_prompt_logprobs", "_rids")

    def __init__(self) -> None:
        self._rids: list[int] = []
        self._counts: list[int] = []
        self._deltas: list[str] = []
        self._ids: list[bytes] = []
        self._endings: list[Ending] = []
        self._logprobs: list[tuple[int, Words]] = []
        self._prompt_logprobs: list[tuple[int, Words]] = []
        self._opened: list[tuple[int, int]] = []

    def add(self, rid: int, piece: Piece, ids: bytes, logprobs: Words | None) -> None:
        """A request's new text. `ids` (int32) and `logprobs` are its tokens', of which `piece.tokens` count."""
        if piece.tokens or piece.delta:
            self._rids.append(rid)
            self._counts.append(piece.tokens)
            self._deltas.append(piece.delta)
            self._ids.append(ids[: COUNT.itemsize * piece.tokens])
        if piece.tokens and logprobs is not None:
            self._logprobs.append((rid, logprobs[: piece.tokens]))
        if piece.ending is not None:
            self._endings.append(piece.ending)

    def add_opened(self, rid: int, cached_tokens: int) -> None:
        """A request has begun; so much of its prompt was found in the prefix cache."""
        self._opened.append((rid, cached_tokens))

    def add_prompt(self, rid: int, logprobs: Words) -> None:
        """Log-probabilities of a request's prompt."""
        self._prompt_logprobs.append((rid, logprobs))

    def text(self) -> Text:
        return Text(
            np.array(self._rids, RID).tobytes(),
            np.array(self._counts, COUNT).tobytes(),
            tuple(self._deltas),
            b"".join(self._ids),
            tuple(self._endings),
            pack(self._logprobs),
            pack(self._prompt_logprobs),
            np.array([rid for rid, _ in self._opened], RID).tobytes(),
            np.array([cached for _, cached in self._opened], COUNT).tobytes(),
        )
