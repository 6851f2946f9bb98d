"""The row table: the state of the admitted requests that changes on every step, in columns by row.

A row is a place in the executor and here alike. One step touches these columns in a handful of vector
operations; nothing per request in Python. Lengths count tokens:

    |<------- committed ------->|<--- in_flight --->|
    |  KV written and settled   |  planned, open    |  not planned yet
    0                           ^ committed         ^ scheduled               ^ target: prefill ends here

`length` counts the known tokens, which `tokens` holds: prompt, then settled outputs. A row is in prefill
while scheduled < target, then it decodes. With drafts `in_flight` is the most that the open steps can
turn out to be, and `open_tokens` counts the tokens that they give at the least. `generation` rises when
a row is released, so that a late result of its last owner cannot be taken for one of the next.

Other columns: `token_limit` is the length at which a request ends, `stops_from` the length from which on a stop
token counts (min_tokens). `drafted`: drafts that lie ready in the executor. `from_host`: the executor does not have
the row's last token. `begun`: where its prefill began. `published`: how many of its blocks have had their chance to
enter the prefix cache; `hashed`: more may have one. `sent_blocks`: entries of its block table that the executor
has. `skipped`: steps in which it could have decoded and was left out. `digests`: how many its request has;
`has_siblings`: there are other choices of its prompt; `keyed`: some of its blocks may have extra keys. A parked row
has blocks and waits for their content: when it comes, `arriving` tokens are committed, and `first_token` (or
NO_FIRST_TOKEN) is its first output. A pinned row must keep its blocks.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from ...ipc.messages import CacheKeys
from ...ipc.plan import Column
from ...ipc.ring import Tokens
from .cache.blocks import BlockPool, blocks_for
from .request import Phase, Request
from .state.state_slots import NO_SLOT

Rows = npt.NDArray[np.intp]
Counts = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

NO_TOKENS: Tokens = np.zeros(0, np.int32)
NO_FIRST_TOKEN = -1
NO_KEYS = CacheKeys()


def spread(rows: Rows, counts: Counts) -> tuple[Rows, Counts]:
    """counts[i] entries for each of the rows: whose each is, and its place among those of its row."""
    owners = np.repeat(rows, counts)
    within = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
    return owners, within


class RowTable:
    """`max_rows` rows; `tokens` and `tables` are touched page by page as they fill, not at the start."""

    def __init__(
        self, max_rows: int, max_model_len: int, block_size: int, pool: BlockPool, *, one_step_a_row: bool = False
    ) -> None:
        """`one_step_a_row`: a row that is in an open step is not offered for another."""
        self._one_step_a_row = one_step_a_row
        self.block_size = block_size
        self.max_model_len = max_model_len
        self.pool = pool
        self.requests: npt.NDArray[np.object_] = np.full(max_rows, None)
        self.tokens: Tokens = np.zeros((max_rows, max_model_len), np.int32)
        self.tables: Column = np.zeros((max_rows, blocks_for(max_model_len, block_size)), np.int32)

        def counts() -> Counts:
            return np.zeros(max_rows, np.int64)

        def flags() -> Flags:
            return np.zeros(max_rows, np.bool_)

        self.running, self.parked, self.pinned, self.introduced = flags(), flags(), flags(), flags()
        self.opened, self.from_host, self.hashed = flags(), flags(), flags()
        self.has_stop_ids, self.has_stop_sequences, self.stops_at_eos = flags(), flags(), flags()
        self.wants_logprobs, self.wants_prompt_logprobs, self.asks_to_send = flags(), flags(), flags()
        self.has_siblings, self.keyed = flags(), flags()
        self.rid, self.arrival, self.generation = counts(), counts(), counts()
        self.committed, self.in_flight, self.target, self.length = counts(), counts(), counts(), counts()
        self.open_tokens, self.open_steps, self.drafted, self.skipped = counts(), counts(), counts(), counts()
        self.token_limit, self.stops_from, self.mrope_delta = counts(), counts(), counts()
        self.blocks, self.sent_blocks, self.published, self.begun = counts(), counts(), counts(), counts()
        self.arriving, self.digests = counts(), counts()
        self.first_token: Tokens = np.full(max_rows, NO_FIRST_TOKEN, np.int32)
        self.state_slot: Counts = np.full(max_rows, NO_SLOT, np.int64)
        self._free = list(range(max_rows - 1, -1, -1))
        self._by_arrival: Rows | None = None

    @property
    def taken(self) -> int:
        """Rows that running and parked requests have."""
        return len(self.requests) - len(self._free)

    @property
    def running_count(self) -> int:
        return self.taken - self.parked_count

    @property
    def parked_count(self) -> int:
        return int(np.count_nonzero(self.parked))

    @property
    def scheduled(self) -> Counts:
        """Per row, the positions that are committed or in an open step."""
        return self.committed + self.in_flight

    def in_order(self) -> Rows:
        """The running rows in the order of their requests' arrival."""
        if self._by_arrival is None:
            rows = np.flatnonzero(self.running)
            self._by_arrival = rows[np.argsort(self.arrival[rows])]
        return self._by_arrival

    def prefills(self) -> Rows:
        """The running rows that have prompt left to plan, in the order of arrival."""
        rows = self.offered()
        return rows[self.scheduled[rows] < self.target[rows]]

    def offered(self) -> Rows:
        """The running rows that may be in the next step, in the order of arrival."""
        rows = self.in_order()
        if self._one_step_a_row:
            rows = rows[self.open_steps[rows] == 0]
        return rows

    def request(self, row: int) -> Request:
        """The request that holds a row."""
        request = self.requests[row]
        assert isinstance(request, Request)
        return request

    def requests_of(self, rows: Rows) -> list[Request]:
        """The requests that hold these rows, all of which are taken."""
        requests: list[Request] = self.requests[rows].tolist()
        return requests

    def admit(self, request: Request, hits: Column, state_slot: int = NO_SLOT) -> None:
        """Give a waiting request a row; there must be a free one. Its target is all of its known tokens.

        `hits` are blocks, held for it already, that have its first tokens.
        """
        row = self._free.pop()
        known, limits = len(request.tokens), request.limits
        self.requests[row] = request
        self.tokens[row, :known] = request.tokens
        self.tables[row, : len(hits)] = hits
        self.rid[row], self.arrival[row] = request.rid, request.arrival
        self.blocks[row] = self.published[row] = len(hits)
        self.committed[row] = self.begun[row] = len(hits) * self.block_size
        self.in_flight[row] = self.open_tokens[row] = self.open_steps[row] = 0
        self.drafted[row] = self.skipped[row] = self.sent_blocks[row] = 0
        self.length[row] = self.target[row] = known
        self.token_limit[row] = request.token_limit
        self.mrope_delta[row] = request.mrope_delta
        self.stops_from[row] = request.prompt_tokens + limits.min_tokens
        self.opened[row] = request.opened
        self.hashed[row], self.digests[row] = request.digests is not None, len(request.digests or ())
        self.has_siblings[row] = request.siblings is not None
        self.keyed[row] = bool(request.images) or request.keys != NO_KEYS
        self.has_stop_ids[row], self.has_stop_sequences[row] = bool(limits.stop_token_ids), bool(limits.stop_sequences)
        self.stops_at_eos[row] = not limits.ignore_eos
        self.wants_logprobs[row] = request.sampling.logprobs >= 0
        self.wants_prompt_logprobs[row] = request.sampling.prompt_logprobs >= 0
        self.asks_to_send[row] = request.remote is not None and request.remote.decoded
        self.introduced[row] = self.from_host[row] = self.parked[row] = self.pinned[row] = False
        self.state_slot[row] = state_slot
        self.running[row] = True
        self._by_arrival = None
        request.row, request.phase = row, Phase.RUNNING
        request.tokens = NO_TOKENS  # and no view of its prompt, which would keep all of it

    def park(self, row: int, arriving: int, first_token: int) -> None:
        """The row's blocks are being filled from elsewhere: it is in no step until `unpark`."""
        self.request(row).phase = Phase.PARKED
        self.arriving[row], self.first_token[row] = arriving, first_token
        self.parked[row], self.running[row] = True, False
        self._by_arrival = None

    def unpark(self, rows: Rows) -> None:
        """What parked rows waited for has come."""
        assert self.parked[rows].all()
        running = Phase.RUNNING
        for request in self.requests_of(rows):
            request.phase = running
        self.committed[rows] = self.begun[rows] = self.arriving[rows]
        self.parked[rows], self.running[rows] = False, True
        self._by_arrival = None

    def lacking(self, rows: Rows, lengths: Counts) -> Counts:
        """How many blocks the rows' tables lack to hold so many tokens."""
        lacking: Counts = np.maximum(-(-lengths // self.block_size) - self.blocks[rows], 0)
        return lacking

    def grow(self, rows: Rows, lengths: Counts) -> bool:
        """Make tables long enough for so many tokens each: all blocks, or none and false."""
        lacking = self.lacking(rows, lengths)
        ids = self.pool.take(int(lacking.sum()))
        if ids is None:
            return False
        if len(ids):
            owners, within = spread(rows, lacking)
            self.tables[owners, self.blocks[owners] + within] = ids
            self.blocks[rows] += lacking
        return True

    def release(self, row: int) -> Tokens:
        """Take a row and its blocks from its request; returns a copy of the known tokens."""
        known = self.tokens[row, : self.length[row]].copy()
        self.release_many(np.array([row]))
        return known

    def release_many(self, rows: Rows) -> None:
        """Take rows and their blocks from their requests, the deepest block of each first.

        Open steps that name them may still run: the executor runs steps in the order of planning, so a
        later owner of a block writes it later.
        """
        counts = self.blocks[rows]
        owners = np.repeat(rows, counts)
        above = np.repeat(np.cumsum(counts), counts) - np.arange(len(owners))
        self.pool.release(self.tables[owners, above - 1])
        self._free_rows(rows)

    def detach(self, row: int) -> Column:
        """Free a row whose blocks go on being held; returns these."""
        held: Column = self.tables[row, : self.blocks[row]].copy()
        self._free_rows(np.array([row]))
        return held

    def _free_rows(self, rows: Rows) -> None:
        self.running[rows] = self.parked[rows] = False
        self.generation[rows] += 1
        self.blocks[rows] = self.in_flight[rows] = self.open_tokens[rows] = self.open_steps[rows] = 0
        self.requests[rows] = None
        self._free.extend(rows.tolist())
        self._by_arrival = None

    def held_blocks(self) -> Column:
        """The ids of all blocks in all tables, with repetition, in no order that matters."""
        held: Column = np.concatenate(
            [self.tables[row, : self.blocks[row]] for row in self._taken_rows()] or [np.zeros(0, np.int32)]
        )
        return held

    def _taken_rows(self) -> Iterator[int]:
        return iter(np.flatnonzero(self.running | self.parked).tolist())

    def check(self) -> None:
        """Compare the books of the rows; raises AssertionError."""
        assert not (self.running & self.parked).any()
        assert sorted(self._free) == np.flatnonzero(~(self.running | self.parked)).tolist(), "rows were lost"
        for row in self._taken_rows():
            request = self.request(row)
            phase = Phase.PARKED if self.parked[row] else Phase.RUNNING
            assert request.row == row and request.phase is phase and request.rid == self.rid[row]
            scheduled = int(self.scheduled[row])
            assert blocks_for(scheduled, self.block_size) <= self.blocks[row], "a planned position has no block"
            assert self.committed[row] <= self.length[row] <= self.token_limit[row] <= self.max_model_len
            assert scheduled <= self.max_model_len
