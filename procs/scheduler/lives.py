"""The requests that live, and how they end: rows, blocks and state go back, and each has one last word.

Blocks that a transfer may still touch are fenced: they are not free before the connector says so.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np

from ...common.types import Finish
from ...ipc.messages import Detail, RemoteKv
from ...ipc.plan import Column
from .cache.prefix_cache import PrefixCache
from .planning.admission import Admission
from .request import Phase, Request
from .rows import Rows, RowTable
from .state.checkpoints import Checkpoints
from .statistics import Statistics
from .transfer.connector import Connector
from .transfer.reports import Key
from .waiting import WaitingLine

FREED_AT_ONCE = 256
"""So many requests that have ended are freed in each plan."""

_ENDED_WELL = (Finish.STOP, Finish.LENGTH)


class Lives:
    """All requests of one scheduler that have not had their last word, by id, and the fenced blocks."""

    def __init__(
        self,
        table: RowTable,
        waiting: WaitingLine,
        admission: Admission,
        checkpoints: Checkpoints,
        cache: PrefixCache,
        connector: Connector,
        statistics: Statistics,
    ) -> None:
        self.requests: dict[int, Request] = {}
        self.fenced: dict[Key, Column] = {}
        self._ended: deque[Request] = deque()
        self._table = table
        self._waiting = waiting
        self._admission = admission
        self._checkpoints = checkpoints
        self._cache = cache
        self._connector = connector
        self._statistics = statistics

    def begin(self, request: Request) -> None:
        self.requests[request.rid] = request
        self._waiting.add(request)

    def end(self, request: Request, finish: Finish, now: float) -> RemoteKv | None:
        """End a request in whatever state it is. Returns where its KV lies, if another engine will fetch it."""
        if request.phase is Phase.RUNNING:
            if finish in _ENDED_WELL:
                self._admission.finished(1)
            # With STOP output has had the last word: nobody would hear where the KV lies.
            details = self._free_rows(np.array([request.row]), now, sends=finish is Finish.LENGTH)
            return details[0].kv if details else None
        if request.phase is Phase.PARKED:
            self._end_parked(request)
        else:
            self.end_waiting(request)
        return None

    def end_waiting(self, request: Request) -> None:
        self._waiting.remove(request)
        self._forget((request,))

    def forget_transfers(self) -> None:
        """Nothing touches blocks any more: what was to be sent is lost, what was to come is asked for again."""
        for request in [one for one in self.requests.values() if one.phase is Phase.PARKED]:
            self._requeue(request)
        for key in list(self.fenced):
            self.unfence(key)
        self._connector.forget()

    def receive_failed(self, request: Request) -> None:
        """The KV of a parked request did not come: it is prefilled here, or it is the caller's to end."""
        self._requeue(request)
        request.transfer_failed = True

    def _requeue(self, request: Request) -> None:
        """A parked request, whose blocks nothing touches, waits at its place again."""
        row = request.row
        self._checkpoints.release(row)
        request.tokens = self._table.release(row)
        request.phase = Phase.PREEMPTED if request.suspended else Phase.FRESH
        request.attempt += 1
        self._waiting.add(request)

    def _end_parked(self, request: Request) -> None:
        """Its blocks are being written: they stay until the transfer is confirmed to be over."""
        self._connector.cancel(request.rid, request.attempt)
        self._checkpoints.release(request.row)
        self.fenced[request.rid, request.attempt] = self._table.detach(request.row)
        self._forget((request,))

    def end_rows(self, rows: Rows, now: float) -> tuple[Detail, ...]:
        """The requests of these running rows have ended with their last tokens.

        Returns a detail for each whose KV another engine will fetch.
        """
        self._admission.finished(len(rows))
        return self._free_rows(rows, now, sends=True)

    def _free_rows(self, rows: Rows, now: float, *, sends: bool) -> tuple[Detail, ...]:
        """Rows and blocks are free at once, unless they are sent."""
        table = self._table
        requests = table.requests_of(rows)
        for row in rows[table.state_slot[rows] >= 0].tolist():
            self._checkpoints.release(row)
        sending = table.asks_to_send[rows]
        details = tuple(detail for row in rows[sending].tolist() if (detail := self._send(row, now, sends)))
        table.release_many(rows[~sending])
        self._forget(requests)
        return details

    def _send(self, row: int, now: float, sends: bool) -> Detail | None:
        """Ask whether the row's blocks are to be sent; they are held until that is over, else they are free.

        An open step may still write behind what is sent; the order waits for it.
        """
        request = self._table.request(row)
        key = request.rid, request.attempt
        blocks = self._table.detach(row)
        kv = self._connector.send(*key, blocks, request.remote if sends else None, now)
        if kv is None:
            self._table.pool.release(blocks[::-1])
            return None
        self.fenced[key] = blocks
        return Detail(request.rid, "", kv)

    def _forget(self, requests: Sequence[Request]) -> None:
        gone = Phase.GONE  # looked up for each of 4,096 it costs as much as all the rest
        for request in requests:
            del self.requests[request.rid]
            request.phase = gone
            request.attempt += 1
            if request.siblings is not None and not request.admitted:
                self._cache.leave(request)
        self._statistics.requests_finished += len(requests)
        self._ended.extend(requests)

    def let_ended_go(self) -> None:
        """Free the memory of some of those that have ended: of 4,096 at once it takes 1 ms, in which tokens wait."""
        for _ in range(min(FREED_AT_ONCE, len(self._ended))):
            self._ended.popleft()

    def unfence(self, key: Key) -> bool:
        """The transfer of an ended request is over; false if no blocks were fenced for it."""
        blocks = self.fenced.pop(key, None)
        if blocks is None:
            return False
        self._table.pool.release(blocks[::-1])
        return True

    def let_siblings_go(self) -> bool:
        """Hold no blocks for choices that wait; true if some were held."""
        return sum(self._cache.let_go(request) for request in self._waiting.walk()) > 0

    def held_blocks(self) -> Column:
        """All blocks that anybody holds, with repetition."""
        siblings = {id(request.siblings): request.siblings for request in self.requests.values() if request.siblings}
        held: Column = np.concatenate(
            [
                self._table.held_blocks(),
                *self.fenced.values(),
                *(np.array(one.held, np.int32) for one in siblings.values() if one is not None),
            ]
        )
        return held
