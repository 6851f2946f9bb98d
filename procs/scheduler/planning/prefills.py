"""The prefills of a step: chunks of the running ones in the order of arrival, then admissions.

What is to be done is decided in one place (`decide`) as a sequence of values, spending from a ledger. Planning acts on
each; forecasting only adds them up. A prompt that is computed by another request just now is waited for, not
computed twice.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from ..cache.blocks import blocks_for
from ..policy import Policy
from ..request import Phase, Request
from ..rows import RowTable
from ..state.checkpoints import Checkpoints
from ..state.media import uncut
from ..transfer.connector import Connector
from ..waiting import WaitingLine
from .admission import Admission, Ledger, Probe

CHUNK_UNIT = 64
"""A prompt that is cut is cut at a multiple of this or of the block size, whichever is more."""

MAX_BYPASSED = 8
"""So many steps a prompt that must go whole lets smaller ones pass."""

MAX_PASSED_OVER = 64
"""After so many that wait for what others compute, or are too long for the step, a plan looks for no more: a look
costs 6 us, and thousands may wait for one prefix. They stay ahead of those that were not looked at, until it is there.
"""


def chunk_size(new: int, left: int, block_size: int, first: bool, budget: int) -> int:
    """How many of `new` prompt tokens go into a step with `left` of its `budget`; 0 is none.

    `first`: no other prefill is in the step. A cut leaves no slivers: it is at a multiple of the unit.
    """
    if new <= left:
        return new
    unit = max(block_size, CHUNK_UNIT)
    whole = left // unit * unit
    if whole:
        return whole
    return left if first or budget < unit else 0


@dataclass(frozen=True, slots=True)
class Gates:
    """What may be planned now: `prefills` at all, `admissions`, and among these `fresh` requests.

    `alone`: the one request that may be admitted, as nobody else may be computed beside it.
    """

    prefills: bool = True
    fresh: bool = True
    admissions: bool = True
    alone: Request | None = None


@dataclass(frozen=True, slots=True)
class Chunk:
    """The next `size` tokens of a running prefill."""

    row: int
    size: int


@dataclass(frozen=True, slots=True)
class Admit:
    """A request takes a row, and its first chunk has `size` tokens."""

    request: Request
    probe: Probe
    size: int


@dataclass(frozen=True, slots=True)
class Receive:
    """A request takes a row and blocks, whose content comes from elsewhere."""

    request: Request


@dataclass(frozen=True, slots=True)
class Bypass:
    """A prompt that must go whole does not fit what is left of the step, and others may."""

    request: Request


@dataclass(frozen=True, slots=True)
class Blocked:
    """A running prefill finds no blocks."""

    row: int


Decision = Chunk | Admit | Receive | Bypass | Blocked


class _Computing:
    """The blocks that running prefills are about to compute: what is computed once need not be computed beside it.

    The same holds for what is on its way to a choice of the same prompt.
    """

    def __init__(self, table: RowTable) -> None:
        self._chains: list[tuple[list[bytes], int, int]] = []
        rows, size = table.in_order(), table.block_size
        unfinished = table.hashed[rows] & (table.committed[rows] // size < table.target[rows] // size)
        for row in rows[unfinished].tolist():
            self.add(table.request(row), int(table.committed[row]) // size, int(table.target[row]) // size)
        self._receivers = table.requests_of(np.flatnonzero(table.parked))

    def add(self, request: Request, begin: int, end: int) -> None:
        """A prefill that will compute its blocks begin..end-1."""
        if request.digests:
            self._chains.append((request.digests, begin, end))

    def add_receiver(self, request: Request) -> None:
        self._receivers.append(request)

    def has(self, request: Request, probe: Probe, most: int) -> bool:
        """Whether the next block of a request, which takes at most so many, is about to be computed.

        Where it has found more blocks than it can use for want of state, somebody else may be about to leave a state
        behind them; nobody who has passed them will.
        """
        block = probe.hits
        if not request.takes_hits:
            return False
        assert request.digests is not None
        if block >= min(most, len(request.digests)):
            return False
        own = request.digests[block]
        return any(
            begin <= probe.found and block < min(end, len(chain)) and chain[block] == own
            for chain, begin, end in self._chains
        )

    def receives(self, request: Request) -> bool:
        """Whether the KV of the same prompt is on its way to another choice."""
        return request.siblings is not None and any(one.siblings is request.siblings for one in self._receivers)


class Prefills:
    """Decides about the prefills of one row table and waiting line. Changes nothing but ledgers."""

    def __init__(
        self,
        table: RowTable,
        waiting: WaitingLine,
        admission: Admission,
        checkpoints: Checkpoints,
        connector: Connector,
        policy: Policy,
    ) -> None:
        self._table = table
        self._waiting = waiting
        self._admission = admission
        self._checkpoints = checkpoints
        self._connector = connector
        self._policy = policy

    def decide(
        self, ledger: Ledger, gates: Gates, only: Request | None = None, planned: Container[int] = ()
    ) -> Iterator[Decision]:
        """What to do, in order; the taker may act on each before it asks for the next.

        `only`: for this request alone. `planned`: rows that are in the step already.
        """
        if not gates.prefills:
            return
        if only is None:
            for row in self._table.prefills().tolist():
                if row in planned:
                    continue
                chunk = self._chunk(row, ledger)
                if chunk is None:
                    return
                yield chunk
                if isinstance(chunk, Blocked):
                    return
        if gates.admissions:
            yield from self._admissions(ledger, self._candidates(gates, only))

    def _candidates(self, gates: Gates, only: Request | None) -> Iterable[Request]:
        if gates.alone is not None:
            only = gates.alone if gates.alone.waits and only in (None, gates.alone) else None
            return () if only is None else (only,)
        if only is None:
            return self._waiting.walk(fresh=gates.fresh)
        return (only,) if gates.fresh or only.phase is not Phase.FRESH else ()

    def _chunk(self, row: int, ledger: Ledger) -> Chunk | Blocked | None:
        """The next chunk of a running prefill; None if the budget ends the planning of prefills."""
        table = self._table
        start = int(table.scheduled[row])
        size = self._size(table.request(row), start, int(table.target[row]) - start, ledger)
        untold = int(table.blocks[row] - table.sent_blocks[row])
        if not size or untold > ledger.told:
            return None
        blocks = blocks_for(start + size, table.block_size) - int(table.blocks[row])
        if blocks > ledger.free:
            return Blocked(row)
        ledger.told -= untold
        ledger.spend_chunk(size, max(0, blocks))
        return Chunk(row, size)

    def _admissions(self, ledger: Ledger, requests: Iterable[Request]) -> Iterator[Decision]:
        """Who is admitted, in order; the first who does not fit stops it."""
        admission, block_size = self._admission, self._table.block_size
        computing = _Computing(self._table)
        passed_over = 0
        for request in requests:
            if ledger.tokens <= 0 or ledger.rows <= 0 or passed_over == MAX_PASSED_OVER:
                return
            probe = admission.probe(request)
            known = len(request.tokens)
            most = (known - 1) // block_size
            waits = computing.has(request, probe, most)
            if computing.receives(request) or (waits and request.siblings is not None):
                passed_over += 1
                continue
            is_here = probe.hits == most and (most > 0 or request.siblings is not None)
            if self._is_elsewhere(request, is_here):
                if not admission.fits(request, probe.without_hits, ledger):
                    return
                admission.spend_receive(request, probe, ledger)
                computing.add_receiver(request)
                yield Receive(request)
                continue
            if waits:
                passed_over += 1
                continue
            start = probe.hits * block_size
            size = self._size(request, start, known - start, ledger, probe.found)
            if not size and self._goes_whole(request):
                passed_over += 1
                yield Bypass(request)
                continue
            if not size or probe.hits > ledger.told or not admission.fits(request, probe, ledger):
                return
            admission.spend(request, probe, ledger, size, blocks_for(start + size, block_size) - probe.hits)
            computing.add(request, probe.hits, known // block_size)
            yield Admit(request, probe, size)

    def _is_elsewhere(self, request: Request, is_here: bool) -> bool:
        """Whether the KV of a request is to come from another engine, as it is not here already."""
        if request.remote is None or request.phase is Phase.PREEMPTED or request.transfer_failed:
            return False
        if request.needs_state or request.sampling.prompt_logprobs >= 0:
            return False  # what comes is KV: no state, and no log-probabilities
        return not is_here and self._connector.match(request.prompt_tokens, request.remote) > 0

    def _goes_whole(self, request: Request) -> bool:
        return not self._policy.chunked and not request.chunkable

    def _size(self, request: Request, start: int, new: int, ledger: Ledger, found: int = 0) -> int:
        """How many of `new` tokens from `start` on go into the step."""
        if self._goes_whole(request):
            return new if new <= ledger.tokens else 0
        if self._policy.chunked and self._policy.long_prefill_threshold:
            new = min(new, self._policy.long_prefill_threshold)
        size = chunk_size(new, ledger.tokens, self._table.block_size, not ledger.prefills, ledger.budget)
        if size and request.needs_state:
            size = self._checkpoints.cut(request, start, size, found)
        if size and request.images:
            most = ledger.budget if ledger.prefills else ledger.tokens  # the first prefill of a step never waits
            size = uncut(start, size, request.images, most, ledger.tokens)
        return size
