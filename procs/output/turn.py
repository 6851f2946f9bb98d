"""One turn of output's loop: from what the schedulers have sent to what each ingest is told.

Takes open wires, rings and a row of the board; main.py opens real ones, and tests in-memory ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from ...common.errors import BadMessage
from ...ipc.board import Row
from ...ipc.messages import Began, Emit
from ...ipc.ring import TokenRing, Tokens
from ...ipc.wire import Inbox, Outbox
from ..detokenizer import TokenTable
from .core import OutputCore
from .reply import Reply

_NO_TOKENS = np.empty(0, np.int32)


class OutputTurn:
    """Output, ready to run. `outboxes` are those to the ingests, by name; a scheduler is an inbox and its ring."""

    def __init__(
        self, schedulers: Mapping[Inbox, TokenRing], outboxes: Mapping[str, Outbox], table: TokenTable, row: Row
    ) -> None:
        self._sources = deque(
            _Source(inbox, ring, OutputCore(table, outboxes, inbox.reject)) for inbox, ring in schedulers.items()
        )
        self._outboxes = outboxes
        self._row = row

    @property
    def live(self) -> int:
        """Requests that have begun and not ended here."""
        return sum(len(source.core) for source in self._sources)

    @property
    def blocked(self) -> bool:
        """Whether an ingest is behind: nothing more is taken in until it has read what waits for it."""
        return any(outbox.waiting for outbox in self._outboxes.values())

    def run(self) -> None:
        """Serve Emits that have arrived. Each becomes at most one message for each ingest."""
        for source in list(self._sources):
            if self.blocked:
                break
            self._sources.rotate(-1)  # the next one is the first when an ingest is no longer behind
            self._serve(source)
        cores = [source.core for source in self._sources]
        self._row["detokenized_tokens"] = sum(core.detokenized_tokens for core in cores)
        self._row["stop_strings"] = sum(core.stop_strings for core in cores)
        self._row["unknown_requests"] = sum(core.unknown_requests for core in cores)

    def _serve(self, source: _Source) -> None:
        for emit in source.inbox.drain():
            if isinstance(emit, Began):
                self._begin_anew(source)
                continue
            tokens = source.take(emit)
            if tokens is not None:
                for ingest, text in source.core.handle(emit, tokens).items():
                    self._outboxes[ingest].send(text)
            if self.blocked:
                return

    def _begin_anew(self, source: _Source) -> None:
        """Another scheduler has the place of a dead one. Ingests see on the board which, once they are woken."""
        source.core.forget()
        for outbox in self._outboxes.values():
            outbox.send(Reply().text())


class _Source(NamedTuple):
    """A scheduler: its wire, its ring, and the books of its requests."""

    inbox: Inbox
    ring: TokenRing
    core: OutputCore

    def take(self, emit: Emit) -> Tokens | None:
        """The tokens of an Emit; an Emit without any names no place in the ring."""
        if not emit.tokens:
            return _NO_TOKENS
        try:
            return self.ring.take(emit.tokens_at, emit.tokens)
        except BadMessage as error:
            self.inbox.reject(error)
            return None
