"""One turn of output's loop: from what the scheduler has sent to what each ingest is told.

Takes open wires, a ring and a row of the board; main.py opens real ones, and tests in-memory ones.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...common.errors import BadMessage
from ...ipc.board import Row
from ...ipc.messages import Emit
from ...ipc.ring import TokenRing, Tokens
from ...ipc.wire import Inbox, Outbox
from ..detokenizer import TokenTable
from .core import OutputCore

_NO_TOKENS = np.empty(0, np.int32)


class OutputTurn:
    """Output, ready to run. `outboxes` are those to the ingests, by name."""

    def __init__(
        self, inbox: Inbox, ring: TokenRing, outboxes: Mapping[str, Outbox], table: TokenTable, row: Row
    ) -> None:
        self._inbox = inbox
        self._ring = ring
        self._outboxes = outboxes
        self._row = row
        self._core = OutputCore(table, outboxes, inbox.reject)

    @property
    def live(self) -> int:
        """Requests that have begun and not ended here."""
        return len(self._core)

    @property
    def blocked(self) -> bool:
        """Whether an ingest is behind: nothing more is taken in until it has read what waits for it."""
        return any(outbox.waiting for outbox in self._outboxes.values())

    def run(self) -> None:
        """Serve Emits that have arrived. Each becomes at most one message for each ingest."""
        if self.blocked:
            return
        for emit in self._inbox.drain():
            tokens = self._take(emit)
            if tokens is not None:
                for ingest, text in self._core.handle(emit, tokens).items():
                    self._outboxes[ingest].send(text)
            if self.blocked:
                break
        self._row["detokenized_tokens"] = self._core.detokenized_tokens
        self._row["stop_strings"] = self._core.stop_strings
        self._row["unknown_requests"] = self._core.unknown_requests

    def _take(self, emit: Emit) -> Tokens | None:
        """The tokens of an Emit; an Emit without any names no place in the ring."""
        if not emit.tokens:
            return _NO_TOKENS
        try:
            return self._ring.take(emit.tokens_at, emit.tokens)
        except BadMessage as error:
            self._inbox.reject(error)
            return None
