"""The row table: the state of the running requests that changes on every step, in columns by row.

A row is a place in the executor and here alike. One step touches these columns in a handful of vector
operations; nothing per request in Python. `stops_from` is the length from which on a stop token counts
(min_tokens). Lengths count tokens:

    |<------- committed ------->|<--- in_flight --->|
    |  KV written and settled   |  planned, open    |  not planned yet
    0                           ^ committed         ^ scheduled               ^ target: prefill ends here

`length` counts the known tokens, which `tokens` holds: prompt, then settled outputs. A row is in prefill
while scheduled < target, then it decodes. `generation` rises when a row is released, so that a late
result of its last owner cannot be taken for one of the next.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from ...ipc.plan import Column
from ...ipc.ring import Tokens
from .blocks import BlockPool, blocks_for
from .request import NO_ROW, Phase, Request

Rows = npt.NDArray[np.intp]


class RowTable:
    """`max_rows` rows; `tokens` and `tables` are touched page by page as they fill, not at the start."""

    def __init__(self, max_rows: int, max_model_len: int, block_size: int, pool: BlockPool) -> None:
        self.block_size = block_size
        self.pool = pool
        self.requests: list[Request | None] = [None] * max_rows
        self.tokens: Tokens = np.zeros((max_rows, max_model_len), np.int32)
        self.tables: Column = np.zeros((max_rows, blocks_for(max_model_len, block_size)), np.int32)
        self.running: npt.NDArray[np.bool_] = np.zeros(max_rows, np.bool_)
        self.opened: npt.NDArray[np.bool_] = np.zeros(max_rows, np.bool_)
        self.has_stop_ids: npt.NDArray[np.bool_] = np.zeros(max_rows, np.bool_)
        self.stops_at_eos: npt.NDArray[np.bool_] = np.zeros(max_rows, np.bool_)
        self.rid, self.arrival, self.generation = (np.zeros(max_rows, np.int64) for _ in range(3))
        self.committed, self.in_flight, self.target = (np.zeros(max_rows, np.int64) for _ in range(3))
        self.length, self.blocks = (np.zeros(max_rows, np.int64) for _ in range(2))
        self.total_limit, self.stops_from = (np.zeros(max_rows, np.int64) for _ in range(2))
        self._free = list(range(max_rows - 1, -1, -1))
        self._by_arrival: Rows | None = None

    @property
    def running_count(self) -> int:
        return len(self.requests) - len(self._free)

    @property
    def scheduled(self) -> npt.NDArray[np.int64]:
        """Per row, the positions that are committed or in an open step."""
        return self.committed + self.in_flight

    def in_order(self) -> Rows:
        """The running rows in the order of their requests' arrival."""
        if self._by_arrival is None:
            rows = np.flatnonzero(self.running)
            self._by_arrival = rows[np.argsort(self.arrival[rows])]
        return self._by_arrival

    def request(self, row: int) -> Request:
        """The request that holds a row."""
        request = self.requests[row]
        assert request is not None
        return request

    def admit(self, request: Request) -> None:
        """Give a waiting request a row; there must be a free one. Its target is all of its known tokens."""
        row = self._free.pop()
        known = len(request.tokens)
        self.requests[row] = request
        self.tokens[row, :known] = request.tokens
        self.rid[row], self.arrival[row] = request.rid, request.arrival
        self.committed[row] = self.in_flight[row] = self.blocks[row] = 0
        self.length[row] = self.target[row] = known
        self.total_limit[row] = request.total_limit
        self.stops_from[row] = request.prompt_tokens + request.limits.min_tokens
        self.opened[row] = request.opened
        self.has_stop_ids[row] = bool(request.limits.stop_token_ids)
        self.stops_at_eos[row] = not request.limits.ignore_eos
        self.running[row] = True
        self._by_arrival = None
        request.row, request.phase = row, Phase.RUNNING
        request.tokens = request.tokens[:0]

    def grow(self, row: int, tokens: int) -> Column | None:
        """Make a row's table long enough for so many tokens: all blocks or none.

        Returns the new block ids, perhaps none; None if the pool has not enough, and nothing has changed.
        """
        held = int(self.blocks[row])
        ids = self.pool.take(max(0, blocks_for(tokens, self.block_size) - held))
        if ids is not None:
            self.tables[row, held : held + len(ids)] = ids
            self.blocks[row] = held + len(ids)
        return ids

    def release(self, row: int) -> Tokens:
        """Take a row and its blocks from its request; returns a copy of the known tokens."""
        known = self.tokens[row, : self.length[row]].copy()
        self.release_many(np.array([row]))
        return known

    def release_many(self, rows: Rows) -> None:
        """Take rows and their blocks from their requests. Open steps that name them may still run: the
        executor runs steps in the order of planning, so a later owner of a block writes it later."""
        widest = int(self.blocks[rows].max(initial=0))
        held = self.tables[rows, :widest][np.arange(widest) < self.blocks[rows, None]]
        self.pool.release(held)
        self.running[rows] = False
        self.generation[rows] += 1
        self.blocks[rows] = self.in_flight[rows] = 0
        for row in rows.tolist():
            self.request(row).row = NO_ROW
            self.requests[row] = None
            self._free.append(row)
        self._by_arrival = None

    def held_blocks(self) -> Column:
        """The ids of all blocks in all tables, in no order that matters."""
        held: Column = np.concatenate(
            [self.tables[row, : self.blocks[row]] for row in self._running_rows()] or [np.zeros(0, np.int32)]
        )
        return held

    def _running_rows(self) -> Iterator[int]:
        return iter(np.flatnonzero(self.running).tolist())

    def check(self) -> None:
        """Compare the books of rows and blocks; raises AssertionError."""
        self.pool.check(self.held_blocks())
        assert sorted(self._free) == np.flatnonzero(~self.running).tolist(), "rows were lost"
        for row in self._running_rows():
            request = self.request(row)
            assert request.row == row and request.phase is Phase.RUNNING and request.rid == self.rid[row]
            scheduled = int(self.scheduled[row])
            assert blocks_for(scheduled, self.block_size) <= self.blocks[row], "a planned position has no block"
            assert self.committed[row] <= self.length[row] <= self.total_limit[row]
            assert scheduled <= self.total_limit[row]
