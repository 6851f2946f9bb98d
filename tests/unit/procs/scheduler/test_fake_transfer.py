"""The faked workers do what a test tells them."""

import numpy as np

from fourstroke.common.types import TransferAction, TransferOutcome
from fourstroke.ipc.messages import KvTransfer, RemoteKv

from .fake_transfer import FakeTransfer, Fate

RECEIVED, FAILED, CANCELLED = TransferOutcome.RECEIVED, TransferOutcome.FAILED, TransferOutcome.CANCELLED
ELSEWHERE = RemoteKv(prefilled=True, decoded=False, host="far:1", transfer=42)
FOR_OTHERS = RemoteKv(prefilled=False, decoded=True)
BLOCKS = np.array([3, 1, 4], np.int32)


def test_the_fake_does_what_it_is_told():
    """Every fate, by itself: which reports come at which tick, and when the blocks are let go."""
    fates = {0: Fate.DONE, 1: Fate.FAILED, 2: Fate.TWICE, 3: Fate.NEVER, 4: Fate.LATE, 5: (Fate.DONE, Fate.NEVER)}
    fake = FakeTransfer(2, fates=fates, late_ticks=3)
    block = {rid: np.array([rid], "<i4").tobytes() for rid in fates}
    fake.take([KvTransfer(rid, 0, TransferAction.RECEIVE, block[rid], ELSEWHERE) for rid in fates])
    assert fake.busy == {0, 1, 2, 3, 4, 5}
    assert [(r.rid, r.worker, r.outcome) for r in fake.tick()] == [
        *((0, worker, RECEIVED) for worker in (0, 1)),
        *((1, worker, FAILED) for worker in (0, 1)),
        *((2, worker, RECEIVED) for worker in (0, 1)),
        (5, 0, RECEIVED),
    ]
    assert fake.busy == {3, 4, 5}
    assert [(r.rid, r.worker) for r in fake.tick()] == [(2, 0), (2, 1)]
    fake.take([KvTransfer(rid, 0, TransferAction.CANCEL) for rid in (3, 4, 5)])
    reports = [(r.rid, r.worker, r.outcome) for r in fake.tick()]
    assert reports == [(3, 0, CANCELLED), (3, 1, CANCELLED), (4, 0, RECEIVED), (4, 1, RECEIVED), (5, 1, CANCELLED)]
    assert fake.busy == set() and fake.idle and fake.tick() == []


def test_the_fake_is_the_same_for_the_same_seed():
    """And another for another."""

    def reports(seed):
        fake = FakeTransfer(3, seed=seed)
        fake.take([KvTransfer(rid, 0, TransferAction.SEND, BLOCKS.tobytes(), FOR_OTHERS) for rid in range(20)])
        return [fake.tick() for _ in range(30)]

    assert reports(1) == reports(1) != reports(2)
