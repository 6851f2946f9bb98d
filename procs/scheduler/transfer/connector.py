"""The scheduler's half of moving KV between engines: which transfers are open, and what became of them.

The other half is in the executor, whose workers move the bytes. Orders go to them, their reports come back,
and the core is told once about each transfer, when no worker touches its blocks any more:

    receive, send --> open --> all workers reported ---------------------> finished
                        |                                                    ^
                        '--> cancel, time-out, a failure --> CANCEL ordered -'   blocks stay fenced until then

The connector knows no block pool, no queue and no clock; `now` is monotonic, in seconds.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from dataclasses import dataclass

from ....common.types import TransferAction, TransferOutcome
from ....ipc.messages import KvTransfer, RemoteKv, TransferReport
from ....ipc.plan import Column
from .reports import DROPPED, LAST, Combiner, Key

_RECEIVED, _SENT, _FAILED, _CANCELLED = TransferOutcome  # to look one up in its class costs 0.1 us

_SPARE = 1024
"""So many entries of transfers that wait no more are kept, beside as many as are open."""

DRAIN_S = 2.0
"""So long a process that stops waits for open transfers."""


@dataclass(frozen=True, slots=True)
class Role:
    """What an engine does for others: a consumer receives KV, a producer sends it; it may do both."""

    consumer: bool = False
    producer: bool = False


@dataclass(slots=True)
class _Transfer:
    """An open transfer. `nonce` is the id by which the peers know it, 0 if they have none for it.

    `wrong` is what no worker can report of it: nobody sends what is to be received. `waits`: it was not stopped, and
    not all workers have reported; if that is so at its deadline, it is stopped.
    """

    key: Key
    deadline: float
    wrong: TransferOutcome
    nonce: int
    waits: bool = True
    stopped: bool = False
    cancelled: bool = False
    overdue: str = ""


class Connector:
    """The transfers of one scheduler.

    `host` is where other engines fetch what this one sends. `fail` says, to the core, that a request whose KV does not
    arrive is to end; else it is prefilled here. Transfer ids count up from `first_transfer`, above 0; drawn at
    random, it keeps an engine that was restarted from answering for its former life. At most one transfer
    of an (id, epoch) is open; with an epoch of its own for each, no late report can be taken for another's.
    """

    def __init__(
        self,
        role: Role,
        workers: int = 1,
        timeout_s: float = 60,
        host: str = "",
        fail: bool = False,
        first_transfer: int = 1,
    ) -> None:
        self.dropped = 0
        self.fail = fail
        self._role = role
        self._timeout_s = timeout_s
        self._host = host
        self._next_transfer = first_transfer
        self._open: dict[Key, _Transfer] = {}
        self._waiting: deque[_Transfer] = deque()  # and some that wait no more; time only goes on
        self._combiner = Combiner(workers, remembered=0)  # what was taken is not open: a late duplicate is told by that
        self._orders: list[KvTransfer] = []

    @property
    def open(self) -> int:
        """Transfers that were started and not taken as finished."""
        return len(self._open)

    @property
    def next_due(self) -> float | None:
        """When `due` has something to do, if nobody reports before."""
        while self._waiting and not self._waiting[0].waits:
            self._waiting.popleft()
        return self._waiting[0].deadline if self._waiting else None

    # Transfers start

    def match(self, prompt_tokens: int, remote: RemoteKv | None) -> int:
        """How many tokens of a prompt exist elsewhere. Nothing starts, and the answer is the same every time."""
        return prompt_tokens if self._role.consumer and remote is not None and remote.prefilled else 0

    def receive(self, rid: int, epoch: int, blocks: Column, remote: RemoteKv, now: float) -> None:
        """Fetch what `match` found into these blocks, int32 [n]; the request that owns them waits for it."""
        assert self._role.consumer, "KV for an engine that does not receive"
        self._start((rid, epoch), _SENT, remote.transfer, now)
        self._orders.append(KvTransfer(rid, epoch, TransferAction.RECEIVE, _column(blocks), remote))

    def send(self, rid: int, epoch: int, blocks: Column, remote: RemoteKv | None, now: float) -> RemoteKv | None:
        """Asked once, when a request has ended: whether its blocks, int32 [n], stay for another engine.

        Returns None if not. Else what the other engine has to know, and the blocks are held until the
        transfer is finished. What is still being received is not sent.
        """
        if not self._role.producer or remote is None or not remote.decoded:
            return None
        if not len(blocks) or (rid, epoch) in self._open:
            return None
        transfer = remote.transfer or self._new_id()
        self._start((rid, epoch), _RECEIVED, transfer, now)
        held = _column(blocks)
        order = dataclasses.replace(remote, transfer=transfer)
        self._orders.append(KvTransfer(rid, epoch, TransferAction.SEND, held, order))
        return RemoteKv(prefilled=True, decoded=False, host=self._host, transfer=transfer, blocks=held)

    def _new_id(self) -> int:
        self._next_transfer += 1
        return self._next_transfer - 1

    def _start(self, key: Key, wrong: TransferOutcome, nonce: int, now: float) -> None:
        assert key not in self._open, "a transfer of this request is open"
        transfer = _Transfer(key, now + self._timeout_s, wrong, nonce)
        self._open[key] = transfer
        self._waiting.append(transfer)
        if len(self._waiting) > 2 * len(self._open) + _SPARE:  # one that waits for long keeps all behind it
            self._waiting = deque(one for one in self._waiting if one.waits)
        self._combiner.expect(*key)

    # Transfers are stopped

    def cancel(self, rid: int, epoch: int) -> None:
        """The request has ended. Its transfer, if one is open, will be told as CANCELLED, whatever the workers say."""
        transfer = self._open.get((rid, epoch))
        if transfer is not None:
            transfer.cancelled = True
            self._stop(transfer)

    def due(self, now: float) -> None:
        """Cancel what has taken too long; each will be told as FAILED."""
        while self._waiting and self._waiting[0].deadline <= now:
            transfer = self._waiting.popleft()
            if transfer.waits:
                silent = ", ".join(map(str, self._combiner.missing(*transfer.key)))
                transfer.overdue = f"no report in {self._timeout_s:g} s from worker {silent}"
                self._stop(transfer)

    def _stop(self, transfer: _Transfer) -> None:
        """Tell the workers that have not reported to leave the blocks alone."""
        if not transfer.stopped and self._combiner.missing(*transfer.key):
            self._orders.append(KvTransfer(*transfer.key, TransferAction.CANCEL))
        transfer.waits, transfer.stopped = False, True

    # Transfers end

    def hear(self, *reports: TransferReport) -> None:
        """Workers' reports. What fits no open transfer, or is no news, is counted and dropped."""
        transfers, add = self._open, self._combiner.add
        for report in reports:
            key = report.rid, report.epoch
            transfer = transfers.get(key)
            if transfer is None or report.outcome is transfer.wrong:
                self.dropped += 1
                continue
            heard = add(key, report)
            if heard is LAST:
                transfer.waits = False
            elif heard is DROPPED:
                self.dropped += 1
            elif report.outcome in (_FAILED, _CANCELLED):
                self._stop(transfer)  # it has failed, so the others need not go on

    def written(self, rid: int, epoch: int, worker: int, nonce: int | None) -> None:
        """A producer says that it has written a worker's part of what is received here.

        It proves with the id of the transfer that it means this one and not an earlier one into the same
        blocks; a peer that has no ids has 0. Otherwise like a report.
        """
        transfer = self._open.get((rid, epoch))
        if transfer is None or transfer.nonce != (nonce or 0):
            self.dropped += 1
            return
        self.hear(TransferReport(rid, epoch, _RECEIVED, worker))

    def take_finished(self) -> list[TransferReport]:
        """The transfers that have ended since the last call, each once, in the order of their last report.

        RECEIVED or SENT if every worker said so, CANCELLED after `cancel`, else FAILED.
        """
        finished = self._combiner.take_finished()
        transfers = map(self._open.pop, finished)
        return [
            _answer(transfer, combined) if transfer.stopped or combined.outcome is _CANCELLED else combined
            for combined, transfer in zip(finished.values(), transfers, strict=True)
        ]

    def forget(self) -> None:
        """The workers are new ones: nothing is open any more, and nobody is told how it ended."""
        self._open.clear()
        self._waiting.clear()
        self._combiner.reset()
        self._orders.clear()

    def take_orders(self) -> list[KvTransfer]:
        """What the executor has to be told, in this order."""
        orders, self._orders = self._orders, []
        return orders

    def drained(self, since: float, now: float) -> bool:
        """Whether a process that wants to stop since `since` may: nothing is open, or it has waited long enough."""
        return not self._open or now - since >= DRAIN_S

    def check(self) -> None:
        """Compare the books; raises AssertionError."""
        waiting = {one.key: one for one in self._waiting if one.waits}
        assert waiting == {key: one for key, one in self._open.items() if one.waits}, "time-outs were lost"
        for key, transfer in self._open.items():
            ends = transfer.stopped or not self._combiner.missing(*key)
            assert ends != transfer.waits, "a transfer that nobody waits for"
        deadlines = [one.deadline for one in self._waiting]
        assert deadlines == sorted(deadlines), "time-outs out of order"
        assert self._combiner.pending <= self.open, "reports of no transfer"


def _answer(transfer: _Transfer, combined: TransferReport) -> TransferReport:
    """What is told of a transfer that was stopped, or given up, when its workers say `combined`."""
    rid, epoch = combined.rid, combined.epoch
    if transfer.cancelled:
        return TransferReport(rid, epoch, _CANCELLED)
    if transfer.overdue:
        return TransferReport(rid, epoch, _FAILED, detail=transfer.overdue)
    if combined.outcome is _CANCELLED:
        return TransferReport(rid, epoch, _FAILED, detail=combined.detail or "given up by a worker")
    return combined


def _column(blocks: Column) -> bytes:
    """Block ids as they travel: int32, little-endian."""
    return blocks.astype("<i4").tobytes()
