"""What the scheduler tells the block pool: which full blocks may be found by their hash from now on.

A block is published when the step that wrote it has settled, prompt and generated blocks alike. The chain of a
prompt comes with the request; generated blocks are hashed here, once, when they are full. Blocks that choices of one
prompt share are held for those that were never admitted.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ...block_hash import ROOT, block_keys, encode_blocks, extend
from ..request import Request
from ..rows import NO_TOKENS, Rows, RowTable
from .blocks import BlockPool
from .residency import Chain


class PrefixCache:
    """The way from rows to published blocks. Without `enabled` only choices of one prompt share blocks."""

    def __init__(self, table: RowTable, pool: BlockPool, *, enabled: bool, tells: bool) -> None:
        self._table = table
        self._pool = pool
        self.enabled = enabled
        self._tells = tells

    def publish(self, rows: Rows) -> None:
        """Publish what these rows have computed since the last time."""
        table = self._table
        full, published = table.committed[rows] // table.block_size, table.published[rows]
        due = np.flatnonzero(table.hashed[rows] & (full > published))
        if not len(due):
            return
        rows, firsts, ends = rows[due], published[due], full[due]
        spans = list(zip(table.requests_of(rows), rows.tolist(), firsts.tolist(), ends.tolist(), strict=True))
        if self.enabled:
            self._extend_chains(spans)
        chains = [self._chain(*span) for span in spans]
        self._pool.publish(*chains)
        for (request, _, first, _), chain in zip(spans, chains, strict=True):
            self.hold_for_siblings(request, chain.ids, first)
        table.published[rows] = firsts + [len(chain.ids) for chain in chains]
        if not self.enabled:  # no block behind the prompt will have a digest: those rows are not due again
            table.hashed[rows] = table.published[rows] < [len(request.digests or ()) for request, *_ in spans]

    def _chain(self, request: Request, row: int, first: int, end: int) -> Chain:
        """The blocks of a row from block `first` to block `end`, without it, as far as they have digests."""
        table, size, digests = self._table, self._table.block_size, request.digests
        assert digests is not None
        end = min(end, len(digests))
        parent = digests[first - 1] if first else ROOT
        ids = table.tables[row, first:end]
        if not self._tells:
            return Chain(ids, digests[first:end], parent, NO_TOKENS)
        keys = [block_keys(request.keys, request.images, index, size) for index in range(first, end)]
        return Chain(ids, digests[first:end], parent, table.tokens[row, first * size : end * size], keys)

    def _extend_chains(self, spans: Iterable[tuple[Request, int, int, int]]) -> None:
        """Hash the blocks that are full and were not, of all rows together: so a block costs 3 us and not 5."""
        size = self._table.block_size
        blocks = [
            (request, row, index)
            for request, row, _, end in spans
            if request.digests is not None
            for index in range(len(request.digests), end)
        ]
        if not blocks:
            return
        owners, indexes = np.array([(row, index) for _, row, index in blocks]).T
        tokens = self._table.tokens[owners[:, None], indexes[:, None] * size + np.arange(size)]
        for (request, _, index), encoded in zip(blocks, encode_blocks(tokens), strict=True):
            digests = request.digests
            assert digests is not None
            keys = block_keys(request.keys, request.images, index, size)
            digests.append(extend(digests[-1] if digests else ROOT, encoded, keys))

    # Choices of one prompt

    def hold_for_siblings(self, request: Request, blocks: np.ndarray, first: int) -> None:
        """Hold computed blocks of a prompt, from block `first` on, for its choices that were never admitted."""
        siblings = request.siblings
        if siblings is None or not siblings.fresh or first != len(siblings.held):
            return
        of_prompt = blocks[: max(0, request.prompt_tokens // self._table.block_size - first)]
        self._pool.hold(of_prompt)
        siblings.held.extend(of_prompt.tolist())

    def leave(self, request: Request) -> None:
        """A choice is admitted for the first time, or ends without: with the last one the holding ends."""
        siblings = request.siblings
        if siblings is not None:
            siblings.fresh -= 1
            if not siblings.fresh:
                self.let_go(request)

    def let_go(self, request: Request) -> bool:
        """Hold no blocks for a request's siblings any more; false if none were held."""
        siblings = request.siblings
        if siblings is None or not siblings.held:
            return False
        self._pool.release(np.array(siblings.held[::-1], np.int32))
        siblings.held.clear()
        return True
