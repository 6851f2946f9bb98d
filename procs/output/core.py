"""The books of output: which requests live, and what one Emit means for each of them.

No wire, ring or clock: `OutputCore.handle` takes an Emit with its tokens and gives a Text for each ingest.
Whatever an Emit holds, nothing is raised: what cannot be used is rejected by itself, and the rest is served.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator

import numpy as np
import numpy.typing as npt

from ...common.errors import BadMessage
from ...common.types import Finish
from ...ipc import codec
from ...ipc.messages import Emit, Ended, Ending, Opened, Text, Ticket
from .detokenizer import TokenTable
from .request import Piece, Request

Tokens = npt.NDArray[np.int32]

_RID, _COUNT = np.dtype("<i8"), np.dtype("<i4")


class OutputCore:
    """The live requests of one scheduler, by rid. The three counters only rise."""

    def __init__(self, table: TokenTable, ingests: Collection[str], reject: Callable[[BadMessage], None]) -> None:
        """`ingests` are the names that a ticket may give to reply to; `reject` counts what cannot be used."""
        self.detokenized_tokens = 0
        self.stop_strings = 0
        self.unknown_requests = 0
        self._table = table
        self._ingests = ingests
        self._reject = reject
        self._requests: dict[int, Request] = {}

    def __len__(self) -> int:
        return len(self._requests)

    def handle(self, emit: Emit, tokens: Tokens) -> dict[str, Text]:
        """What each ingest, by name, is to be told. `tokens` (int32) are those of the Emit's rows, in order.

        A request's end comes with its last tokens: without an Opened before, or after the end that a stop string
        made here, its rows are dropped and counted. An Opened of a higher epoch starts a request afresh.
        """
        try:
            rows = _rows(emit, len(tokens))
        except BadMessage as error:
            self._reject(error)
            return {}
        for opened in emit.opened:
            self._open(opened)
        places = self._places(tokens)
        ids = tokens.astype("<i4", copy=False).tobytes()
        ended = {end.rid: end for end in emit.ended if self._is_end(end)}
        replies: defaultdict[str, _Reply] = defaultdict(_Reply)
        for rid, first, last in rows:
            self._push(replies, rid, places[first:last], ended.pop(rid, None), ids[4 * first : 4 * last])
        for rid, end in ended.items():
            self._push(replies, rid, [], end, b"")
        return {ingest: reply.text() for ingest, reply in replies.items()}

    def _open(self, opened: Opened) -> None:
        try:
            ticket = codec.decode(opened.ticket, Ticket)
            if ticket.reply_to not in self._ingests:
                raise BadMessage(f"a ticket to reply to {ticket.reply_to!r:.80}")
            if "" in ticket.stop:
                raise BadMessage("a ticket with an empty stop string")
            known = self._requests.get(opened.rid)
            if known is not None and opened.epoch <= known.epoch:
                raise BadMessage(f"request {opened.rid} was opened twice in epoch {opened.epoch}")
        except BadMessage as error:
            self._reject(error)
            return
        self._requests[opened.rid] = Request(opened, ticket, self._table)

    def _places(self, tokens: Tokens) -> list[int]:
        places = self._table.places(tokens)
        if (tokens < 0).any():  # ids beyond the tokenizer's are legal: a padded embedding has them; they have no text
            self._reject(BadMessage(f"{(tokens < 0).sum()} negative token ids"))
        listed: list[int] = places.tolist()
        return listed

    def _is_end(self, ended: Ended) -> bool:
        if ended.finish is Finish.NONE:
            self._reject(BadMessage(f"the end of request {ended.rid} gives no reason"))
        return ended.finish is not Finish.NONE

    def _push(
        self, replies: defaultdict[str, _Reply], rid: int, places: list[int], ended: Ended | None, ids: bytes
    ) -> None:
        """Give a request its new tokens and its end, and tell its ingest."""
        request = self._requests.get(rid)
        if request is None:
            self.unknown_requests += 1
            return
        piece = request.push(places, ended)
        self.detokenized_tokens += piece.tokens
        if piece.ending is not None:
            del self._requests[rid]
            self.stop_strings += piece.ending.stop_string is not None
        if piece.tokens or piece.delta or piece.ending is not None:
            replies[request.reply_to].add(rid, piece, ids)


def _rows(emit: Emit, tokens: int) -> Iterator[tuple[int, int, int]]:
    """(rid, first, last) of each row: its tokens are those from first up to last. Raises BadMessage."""
    if len(emit.rids) % _RID.itemsize or 2 * len(emit.counts) != len(emit.rids):
        raise BadMessage(f"columns of {len(emit.rids)} and {len(emit.counts)} bytes")
    rids, counts = np.frombuffer(emit.rids, _RID), np.frombuffer(emit.counts, _COUNT)
    last = np.cumsum(counts, dtype=np.int64)
    if (counts < 0).any() or (last[-1] if len(last) else 0) != tokens:
        raise BadMessage(f"counts that do not add up to {tokens} tokens")
    return zip(rids.tolist(), (last - counts).tolist(), last.tolist(), strict=True)


class _Reply:
    """A Text that grows row by row."""

    __slots__ = ("_counts", "_deltas", "_endings", "_ids", "_rids")

    def __init__(self) -> None:
        self._rids: list[int] = []
        self._counts: list[int] = []
        self._deltas: list[str] = []
        self._ids: list[bytes] = []
        self._endings: list[Ending] = []

    def add(self, rid: int, piece: Piece, ids: bytes) -> None:
        """A request's new text; `ids` holds its tokens' ids, of which the first `piece.tokens` count."""
        if piece.tokens or piece.delta:
            self._rids.append(rid)
            self._counts.append(piece.tokens)
            self._deltas.append(piece.delta)
            self._ids.append(ids[: 4 * piece.tokens])
        if piece.ending is not None:
            self._endings.append(piece.ending)

    def text(self) -> Text:
        return Text(
            np.array(self._rids, _RID).tobytes(),
            np.array(self._counts, _COUNT).tobytes(),
            tuple(self._deltas),
            b"".join(self._ids),
            tuple(self._endings),
        )
