"""Rows of the table as rows of a step: chunks with what they need, and what the executor must be told of each row."""

from __future__ import annotations

import numpy as np

from ....ipc.messages import MediaChunk, NewRow
from ..request import Request
from ..rows import RowTable, spread
from ..state.checkpoints import Checkpoints
from ..state.media import media_chunk
from .step import NO_TOKEN, StepBuilder


class StepRows:
    """Writes rows of one table into steps."""

    def __init__(
        self, table: RowTable, checkpoints: Checkpoints, eos_token_ids: tuple[int, ...], *, stateful: bool
    ) -> None:
        self._table = table
        self._checkpoints = checkpoints
        self._eos_token_ids = eos_token_ids
        self._stateful = stateful

    def add_chunk(self, builder: StepBuilder, row: int, size: int) -> None:
        """The next `size` tokens of a prefill; the pool has the blocks."""
        table = self._table
        start = int(table.scheduled[row])
        end = start + size
        if self._stateful:
            self._checkpoints.keep(builder, row, start)  # who is admitted after it may resume there
        grown = table.grow(np.array([row]), np.array([end]))
        assert grown, "what was decided has blocks"
        target = int(table.target[row])
        last = end == target
        builder.chunk(
            row,
            start,
            table.tokens[row, start:end],
            samples=last and target < table.token_limit[row],
            following=NO_TOKEN if last else int(table.tokens[row, end]),
            media=self._media(builder, row, start, size),
        )

    def _media(self, builder: StepBuilder, row: int, start: int, size: int) -> MediaChunk | None:
        request = self._table.request(row)
        if not (request.images or request.mrope):
            return None
        begun = int(self._table.begun[row])
        return media_chunk(builder.next_index, request.images, request.mrope, request.mrope_delta, begun, start, size)

    def introduce(self, builder: StepBuilder) -> None:
        """Tell the executor what it does not know of the rows in the step: new requests, blocks, checkpoints due."""
        table, rows = self._table, builder.rows
        for row, start in zip(rows.tolist(), builder.starts.tolist(), strict=True) if self._stateful else ():
            self._checkpoints.keep(builder, row, start)
        for row in rows[~table.introduced[rows]].tolist():
            builder.new_row(self._new_row(table.request(row)))
        table.introduced[rows] = True
        unsent = table.blocks[rows] - table.sent_blocks[rows]
        if unsent.any():
            owners, within = spread(rows, unsent)
            indexes = table.sent_blocks[owners] + within
            builder.change_blocks(owners, indexes, table.tables[owners, indexes])
            table.sent_blocks[rows] = table.blocks[rows]

    def _new_row(self, request: Request) -> NewRow:
        """What the executor must know of a request that takes a row."""
        limits, slot = request.limits, int(self._table.state_slot[request.row])
        masked: tuple[int, ...] = ()
        if limits.min_tokens:
            masked = limits.stop_token_ids + (() if limits.ignore_eos else self._eos_token_ids)
        masked_until = request.prompt_tokens + limits.min_tokens if limits.min_tokens else 0
        return NewRow(request.row, request.seed, request.sampling, masked_until, masked, slot, *self._history(request))

    def _history(self, request: Request) -> tuple[bytes, bytes]:
        """The different tokens of the prompt and those generated so far, as far as the row's sampling needs them."""
        sampling, table = request.sampling, self._table
        if not sampling.needs_history:
            return b"", b""
        known = table.tokens[request.row, : table.length[request.row]]
        prompt, generated = known[: request.prompt_tokens], known[request.prompt_tokens :]
        seen = b""
        if sampling.repetition_penalty != 1:  # sorting a prompt of 128k tokens would take 8 ms
            flags = np.zeros(int(prompt.max()) + 1, np.bool_)
            flags[prompt] = True
            seen = np.flatnonzero(flags).astype(np.int32).tobytes()
        return seen, generated.tobytes()
