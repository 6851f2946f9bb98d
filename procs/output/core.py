"""The books of output: which requests live, and what one Emit means for each of them.

No wire, ring or clock: `OutputCore.handle` takes an Emit with its tokens and gives a Text for each ingest.
Whatever an Emit holds, nothing is raised: one whose columns do not agree is rejected as a whole, anything else that
cannot be used by itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection
from typing import NamedTuple

from ...common.errors import BadMessage
from ...ipc import codec
from ...ipc.logprobs import Words
from ...ipc.messages import Emit, Opened, Text, Ticket
from ...ipc.ring import Tokens
from ..detokenizer import TokenTable
from .columns import read_columns
from .reply import Reply
from .request import End, Request


class _New(NamedTuple):
    """The new tokens of a request: their places in the token table, their ids (int32), their log-probabilities."""

    places: list[int]
    ids: bytes
    logprobs: Words | None


_NOTHING = _New([], b"", None)


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
        made here, its rows are dropped and counted.
        """
        try:
            columns = read_columns(emit, len(tokens), self._reject)
        except BadMessage as error:
            self._reject(error)
            return {}
        replies: defaultdict[str, Reply] = defaultdict(Reply)
        for opened in emit.opened:
            if (request := self._open(opened)) is not None:
                replies[request.reply_to].add_opened(opened.rid, request.cached_tokens)
        places = self._places(tokens)
        ids = tokens.astype("<i4", copy=False).tobytes()
        for rid, logprobs in columns.prompt_logprobs.items():
            if (request := self._find(rid)) is not None:
                replies[request.reply_to].add_prompt(rid, logprobs)
        for rid, first, last in columns.rows:
            new = _New(places[first:last], ids[4 * first : 4 * last], columns.logprobs.get(rid))
            self._push(replies, rid, new, columns.ends.pop(rid, None))
        for rid, end in columns.ends.items():
            self._push(replies, rid, _NOTHING, end)
        return {ingest: reply.text() for ingest, reply in replies.items()}

    def forget(self) -> None:
        """The scheduler of these requests has died; another one knows none of them."""
        self._requests.clear()

    def _open(self, opened: Opened) -> Request | None:
        """A new request; None if what opens it is no use."""
        try:
            ticket = codec.decode(opened.ticket, Ticket)
            if ticket.reply_to not in self._ingests:
                raise BadMessage(f"a ticket to reply to {ticket.reply_to!r:.80}")
            if "" in ticket.stop:
                raise BadMessage("a ticket with an empty stop string")
            if not all(0 <= token < self._table.unknown for token in ticket.markers):
                raise BadMessage("a ticket with markers that are no tokens")
            if opened.rid in self._requests:
                raise BadMessage(f"request {opened.rid} was opened twice")
        except BadMessage as error:
            self._reject(error)
            return None
        request = self._requests[opened.rid] = Request(opened, ticket, self._table)
        return request

    def _places(self, tokens: Tokens) -> list[int]:
        places = self._table.places(tokens)
        if (tokens < 0).any():  # ids beyond the tokenizer's are legal: a padded embedding has them; they have no text
            self._reject(BadMessage(f"{(tokens < 0).sum()} negative token ids"))
        listed: list[int] = places.tolist()
        return listed

    def _find(self, rid: int) -> Request | None:
        request = self._requests.get(rid)
        self.unknown_requests += request is None
        return request

    def _push(self, replies: defaultdict[str, Reply], rid: int, new: _New, end: End | None) -> None:
        """Give a request its new tokens and its end, and tell its ingest."""
        request = self._find(rid)
        if request is None:
            return
        piece = request.push(new.places, end)
        self.detokenized_tokens += piece.tokens
        if piece.ending is not None:
            del self._requests[rid]
            self.stop_strings += piece.ending.stop_string is not None
        if piece.tokens or piece.delta or piece.ending is not None:
            replies[request.reply_to].add(rid, piece, new.ids, new.logprobs)
