"""The other ingests of this server, which a client may have meant: one port, and any of them gets the connection.

A request's id says which ingest owns it. When another one is asked to end it, it asks the owner over the wire that
each ingest has to each other. All else that a client may ask is answered alike by all of them.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import uuid
from collections.abc import Callable

from ...common.errors import BadMessage
from ...ipc.messages import AbortAnswer, AbortById
from ...ipc.wire import Outbox
from .errors import Refusal

ANSWER_S = 5.0
"""An ingest that has not answered after so long is stuck, or about to end."""

_ID = re.compile(r"[a-z]+-([0-9a-f]{2})[0-9a-f]{30}")


class Siblings:
    """The ways to the others, by their numbers, and what they have been asked."""

    def __init__(self, index: int, abort: Callable[[str], bool]) -> None:
        """`index` is this ingest's number; `abort` ends a request of its own, if there is one with that id."""
        self._index = index
        self._abort = abort
        self._ways: dict[int, Outbox] = {}
        self._numbers = itertools.count()
        self._asked: dict[int, asyncio.Future[bool]] = {}

    def add(self, index: int, way: Outbox) -> None:
        """There is another ingest, with that number."""
        self._ways[index] = way

    def new_id(self, prefix: str) -> str:
        """An id for a request of this ingest: its number in two digits, and 120 bits that nobody else has."""
        return f"{prefix}-{self._index:02x}{uuid.uuid4().hex[2:]}"

    async def abort(self, request_id: str) -> bool:
        """End a request, whoever owns it; false if there is none. Raises Refusal if its owner does not answer."""
        parts = _ID.fullmatch(request_id)
        way = None if parts is None else self._ways.get(int(parts[1], 16))
        if way is None:
            return self._abort(request_id)
        number = next(self._numbers)
        answer = self._asked[number] = asyncio.get_running_loop().create_future()
        way.send(AbortById(number, request_id))
        try:
            return await asyncio.wait_for(answer, ANSWER_S)
        except TimeoutError:
            raise Refusal(503, "the process that has this request does not answer", code="no_answer") from None
        finally:
            del self._asked[number]

    def hear(self, index: int, message: AbortById | AbortAnswer) -> None:
        """Take in what another ingest says. Raises BadMessage for an answer to something that was not asked."""
        if isinstance(message, AbortById):
            self._ways[index].send(AbortAnswer(message.number, self._abort(message.request_id)))
            return
        answer = self._asked.get(message.number)
        if answer is None:
            raise BadMessage(f"an answer to question {message.number}, which nobody waits for")
        if not answer.done():
            answer.set_result(message.found)
