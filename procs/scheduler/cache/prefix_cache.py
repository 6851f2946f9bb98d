"""What the scheduler tells the block pool: which full blocks may be found by their hash from now on.

A block is published when the step that wrote it has settled, prompt and generated blocks alike. The chain of a
prompt comes with the request; generated blocks are hashed here, once, when they are full. Blocks that choices of one
prompt share are held for those that were never admitted.
"""

from __future__ import annotations

import numpy as np

from ....ipc.block_hash import block_keys, encode_blocks, extend
from ....ipc.plan import Column
from ....ipc.ring import Tokens
from ..request import Request
from ..rows import Counts, Rows, RowTable, spread
from .blocks import BlockPool
from .residency import Chains, Contents


class PrefixCache:
    """The way from rows to published blocks. Without `enabled` only choices of one prompt share blocks."""

    def __init__(self, table: RowTable, pool: BlockPool, root: bytes, *, enabled: bool, tells: bool) -> None:
        self._table = table
        self._pool = pool
        self._root = root
        self.enabled = enabled
        self._tells = tells

    def publish(self, rows: Rows) -> None:
        """Publish what these rows have computed since the last time."""
        table = self._table
        full, published = table.committed[rows] // table.block_size, table.published[rows]
        due = table.hashed[rows] & (full > published)
        if not due.any():
            return
        rows, firsts, ends = rows[due], published[due], full[due]
        if self.enabled:
            self._extend_chains(rows, ends)
        else:  # no block behind the prompt will have a digest: those rows are not due again
            ends = np.minimum(ends, table.digests[rows])
            table.hashed[rows] = ends < table.digests[rows]
        some = ends > firsts
        self._publish(rows[some], firsts[some], ends[some])

    def _publish(self, rows: Rows, firsts: Counts, ends: Counts) -> None:
        """Publish of each row the blocks from its first one to its end, without this; there are some."""
        table, counts = self._table, ends - firsts
        owners, within = spread(rows, counts)
        indexes = np.repeat(firsts, counts) + within
        ids = table.tables[owners, indexes]
        parents, behind = [self._root] * len(rows), np.flatnonzero(firsts)
        for run, digest in zip(behind.tolist(), self._digests(rows[behind], firsts[behind] - 1), strict=True):
            parents[run] = digest
        contents = self._contents(owners, indexes)
        self._pool.publish(Chains(ids, self._digests(owners, indexes), counts, parents, contents))
        table.published[rows] = ends
        for run in np.flatnonzero(table.has_siblings[rows]).tolist():
            self.hold_for_siblings(table.request(int(rows[run])), ids[owners == rows[run]], int(firsts[run]))

    def _digests(self, rows: Rows, indexes: Counts) -> list[bytes]:
        """The digest of block indexes[i] of rows[i], which has one."""
        blocks = zip(self._table.requests_of(rows), indexes.tolist(), strict=True)
        return [(request.digests or ())[index] for request, index in blocks]

    def _contents(self, rows: Rows, indexes: Counts) -> Contents | None:
        """What the world is told of these blocks, if it is told."""
        if not self._tells:
            return None
        table, keys = self._table, {}
        for place in np.flatnonzero(table.keyed[rows]).tolist():
            request = table.request(int(rows[place]))
            found = block_keys(request.keys, request.images, int(indexes[place]), table.block_size)
            if found:
                keys[place] = found
        return Contents(self._tokens(rows, indexes), keys)

    def _tokens(self, rows: Rows, indexes: Counts) -> Tokens:
        """The tokens of block indexes[i] of rows[i], [blocks, block_size]."""
        size = self._table.block_size
        tokens: Tokens = self._table.tokens[rows[:, None], indexes[:, None] * size + np.arange(size)]
        return tokens

    def _extend_chains(self, rows: Rows, ends: Counts) -> None:
        """Hash the blocks that are full and were not, of all rows together: so a block costs 3 us and not 5."""
        table, known = self._table, self._table.digests[rows]
        lacking = np.maximum(ends - known, 0)
        if not lacking.any():
            return
        owners, within = spread(rows, lacking)
        indexes = np.repeat(known, lacking) + within
        blocks = zip(
            table.requests_of(owners), indexes.tolist(), encode_blocks(self._tokens(owners, indexes)), strict=True
        )
        for request, index, encoded in blocks:
            digests = request.digests
            assert digests is not None
            keys = block_keys(request.keys, request.images, index, table.block_size)
            digests.append(extend(digests[-1] if digests else self._root, encoded, keys))
        table.digests[rows] = known + lacking

    # Choices of one prompt

    def hold_for_siblings(self, request: Request, blocks: Column, first: int) -> None:
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
