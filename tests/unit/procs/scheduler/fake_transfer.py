"""The executor's half of KV transfers, faked: workers that take orders and report after some ticks.

What becomes of a request's transfer is chosen by its id, for all workers or for each, or drawn from a seed; the same
orders and ticks then give the same reports. The fake knows what its workers may still touch, so that a test can
compare that with what the scheduler gives away.
"""

from __future__ import annotations

import enum
import itertools
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fourstroke.common.types import TransferAction, TransferOutcome
from fourstroke.ipc.messages import Image, KvTransfer, TransferReport
from fourstroke.ipc.plan import Column
from fourstroke.procs.executor.fake_memory import FakeMemory
from fourstroke.procs.executor.fake_text import ROOT, chain, marks

Key = tuple[int, int]


def put_kv(memory: FakeMemory, blocks: Column, tokens: Sequence[int], images: Sequence[Image] = ()) -> None:
    """Write into these blocks of the fake executor what a prefill of the tokens would leave there."""
    size, last, places = memory._block_size, np.array([ROOT]), np.arange(len(tokens))
    own_marks = marks(places, np.tile(places, (3, 1)), images)
    for place, token in enumerate(tokens):
        last = chain(last, np.uint64(token) + own_marks[place : place + 1])
        memory._cache[int(blocks[place // size]) * size + place % size] = last[0]


class Fate(enum.Enum):
    """What one worker does with an order.

    DONE succeeds soon, LATE succeeds after `late_ticks` whether cancelled or not, FAILED fails soon, TWICE reports its
    success twice, NEVER does nothing. All but LATE confirm a CANCEL that comes before they have reported.
    """

    DONE = enum.auto()
    LATE = enum.auto()
    FAILED = enum.auto()
    TWICE = enum.auto()
    NEVER = enum.auto()


@dataclass(slots=True)
class _Job:
    """What one worker still has to do: report `outcomes`, one a tick, from tick `due` on."""

    key: Key
    worker: int
    fate: Fate
    blocks: frozenset[int]
    due: int
    outcomes: list[TransferOutcome]


class FakeTransfer:
    """`fates`: by request id, for all workers or one for each; of others they are drawn from `seed`, or are DONE."""

    def __init__(
        self,
        workers: int = 1,
        *,
        fates: Mapping[int, Fate | tuple[Fate, ...]] | None = None,
        seed: int | None = None,
        ticks: int = 1,
        late_ticks: int = 20,
    ) -> None:
        self.orders: list[KvTransfer] = []
        self._workers = workers
        self._fates = dict(fates or {})
        self._seed = seed
        self._ticks = ticks
        self._late_ticks = late_ticks
        self._now = 0
        self._jobs: list[_Job] = []

    @property
    def busy(self) -> set[int]:
        """The ids of the blocks that a worker may still read or write."""
        return set(itertools.chain.from_iterable(job.blocks for job in self._jobs))

    @property
    def idle(self) -> bool:
        """Whether there will be no more reports without further orders."""
        return not any(job.outcomes for job in self._jobs)

    def take(self, orders: Iterable[KvTransfer]) -> None:
        """Orders from the scheduler."""
        for order in orders:
            self.orders.append(order)
            if order.action is TransferAction.CANCEL:
                self._cancel((order.rid, order.epoch))
            else:
                self._jobs += [self._job(order, worker) for worker in range(self._workers)]

    def tick(self) -> list[TransferReport]:
        """One tick goes by; the reports that are due, in an order that the seed decides."""
        self._now += 1
        reports = []
        for job in self._jobs:
            if job.outcomes and job.due <= self._now:
                outcome = job.outcomes.pop(0)
                detail = "the wire broke" if outcome is TransferOutcome.FAILED else ""
                reports.append(TransferReport(*job.key, outcome, job.worker, detail))
                job.blocks = frozenset()  # the worker is done, whatever it still has to say
        self._jobs = [job for job in self._jobs if job.outcomes or job.blocks]
        if self._seed is not None:
            random.Random(f"{self._seed} {self._now}").shuffle(reports)
        return reports

    def _job(self, order: KvTransfer, worker: int) -> _Job:
        fate, ticks = self._draw(order, worker)
        success = TransferOutcome.SENT if order.action is TransferAction.SEND else TransferOutcome.RECEIVED
        outcomes = {
            Fate.FAILED: [TransferOutcome.FAILED],
            Fate.TWICE: [success, success],
            Fate.NEVER: [],
        }.get(fate, [success])
        blocks = frozenset(np.frombuffer(order.blocks, "<i4").tolist())
        return _Job((order.rid, order.epoch), worker, fate, blocks, self._now + ticks, outcomes)

    def _draw(self, order: KvTransfer, worker: int) -> tuple[Fate, int]:
        """What a worker does with an order, and in how many ticks."""
        source = random.Random(f"{self._seed} {order.rid} {order.epoch} {int(order.action)} {worker}")
        ticks = self._ticks if self._seed is None else source.randint(1, max(self._ticks, 4))
        fate = self._fates.get(order.rid)
        if fate is None:
            fate = Fate.DONE if self._seed is None else source.choice(list(Fate))
        elif isinstance(fate, tuple):
            fate = fate[worker]
        return fate, self._late_ticks if fate is Fate.LATE else ticks

    def _cancel(self, key: Key) -> None:
        """Every worker that has not reported confirms on the next tick that it leaves the blocks alone."""
        for job in self._jobs:
            if job.key == key and job.blocks and job.fate is not Fate.LATE:
                job.outcomes = [TransferOutcome.CANCELLED]
                job.due = self._now + 1
