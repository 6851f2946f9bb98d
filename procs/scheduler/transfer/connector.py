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
from collections import OrderedDict
from dataclasses import dataclass

from ....common.types import TransferAction, TransferOutcome
from ....ipc.messages import KvTransfer, RemoteKv, TransferReport
from ....ipc.plan import Column
from .reports import DROPPED, LAST, Combiner, Finished, Key

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

    `wrong` is what no worker can report of it: nobody sends what is to be received.
    """

    wrong: TransferOutcome
    nonce: int
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
        self._deadlines: OrderedDict[Key, float] = OrderedDict()  # of those not stopped; time only goes on
        self._combiner = Combiner(workers)
        self._orders: list[KvTransfer] = []

    @property
    def open(self) -> int:
        """Transfers that were started and not taken as finished."""
        return len(self._open)

    @property
    def next_due(self) -> float | None:
        """When `due` has something to do, if nobody reports before."""
        return next(iter(self._deadlines.values()), None)

    # Transfers start

    def match(self, prompt_tokens: int, remote: RemoteKv | None) -> int:
        """How many tokens of a prompt exist elsewhere. Nothing starts, and the answer is the same every time."""
        return prompt_tokens if self._role.consumer and remote is not None and remote.prefilled else 0

    def receive(self, rid: int, epoch: int, blocks: Column, remote: RemoteKv, now: float) -> None:
        """Fetch what `match` found into these blocks, int32 [n]; the request that owns them waits for it."""
        assert self._role.consumer, "KV for an engine that does not receive"
        self._start(rid, epoch, _Transfer(TransferOutcome.SENT, remote.transfer), now)
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
        self._start(rid, epoch, _Transfer(TransferOutcome.RECEIVED, transfer), now)
        held = _column(blocks)
        order = dataclasses.replace(remote, transfer=transfer)
        self._orders.append(KvTransfer(rid, epoch, TransferAction.SEND, held, order))
        return RemoteKv(prefilled=True, decoded=False, host=self._host, transfer=transfer, blocks=held)

    def _new_id(self) -> int:
        self._next_transfer += 1
        return self._next_transfer - 1

    def _start(self, rid: int, epoch: int, transfer: _Transfer, now: float) -> None:
        key = rid, epoch
        assert key not in self._open, "a transfer of this request is open"
        self._open[key] = transfer
        self._deadlines[key] = now + self._timeout_s
        self._combiner.expect(rid, epoch)

    # Transfers are stopped

    def cancel(self, rid: int, epoch: int) -> None:
        """The request has ended. Its transfer, if one is open, will be told as CANCELLED, whatever the workers say."""
        transfer = self._open.get((rid, epoch))
        if transfer is not None:
            transfer.cancelled = True
            self._stop((rid, epoch), transfer)

    def due(self, now: float) -> None:
        """Cancel what has taken too long; each will be told as FAILED."""
        while (deadline := self.next_due) is not None and deadline <= now:
            key = next(iter(self._deadlines))
            transfer = self._open[key]
            silent = ", ".join(map(str, self._combiner.missing(*key)))
            transfer.overdue = f"no report in {self._timeout_s:g} s from worker {silent}"
            self._stop(key, transfer)

    def _stop(self, key: Key, transfer: _Transfer) -> None:
        """Tell the workers that have not reported to leave the blocks alone."""
        self._deadlines.pop(key, None)
        if not transfer.stopped and self._combiner.missing(*key):
            self._orders.append(KvTransfer(*key, TransferAction.CANCEL))
        transfer.stopped = True

    # Transfers end

    def hear(self, report: TransferReport) -> None:
        """A worker's report. What fits no open transfer, or is no news, is counted and dropped."""
        key = report.rid, report.epoch
        transfer = self._open.get(key)
        if transfer is None or report.outcome is transfer.wrong:
            self.dropped += 1
            return
        heard = self._combiner.add(report)
        if heard is DROPPED:
            self.dropped += 1
        elif heard is LAST:
            self._deadlines.pop(key, None)
        elif report.outcome in (TransferOutcome.FAILED, TransferOutcome.CANCELLED):
            self._stop(key, transfer)  # it has failed, so the others need not go on

    def written(self, rid: int, epoch: int, worker: int, nonce: int | None) -> None:
        """A producer says that it has written a worker's part of what is received here.

        It proves with the id of the transfer that it means this one and not an earlier one into the same
        blocks; a peer that has no ids has 0. Otherwise like a report.
        """
        transfer = self._open.get((rid, epoch))
        if transfer is None or transfer.nonce != (nonce or 0):
            self.dropped += 1
            return
        self.hear(TransferReport(rid, epoch, TransferOutcome.RECEIVED, worker))

    def take_finished(self) -> list[Finished]:
        """The transfers that have ended since the last call, each once, in the order of their last report.

        RECEIVED or SENT if every worker said so, CANCELLED after `cancel`, else FAILED.
        """
        return [self._finish(combined) for combined in self._combiner.take_finished()]

    def _finish(self, combined: Finished) -> Finished:
        rid, epoch, outcome, detail = combined
        transfer = self._open.pop((rid, epoch))
        if transfer.cancelled:
            return Finished(rid, epoch, TransferOutcome.CANCELLED)
        if transfer.overdue:
            return Finished(rid, epoch, TransferOutcome.FAILED, transfer.overdue)
        if outcome is TransferOutcome.CANCELLED:
            return Finished(rid, epoch, TransferOutcome.FAILED, detail or "given up by a worker")
        return combined

    def forget(self) -> None:
        """The workers are new ones: nothing is open any more, and nobody is told how it ended."""
        self._open.clear()
        self._deadlines.clear()
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
        assert set(self._deadlines) <= set(self._open), "a time-out of no transfer"
        for key, transfer in self._open.items():
            ends = transfer.stopped or not self._combiner.missing(*key)
            assert ends != (key in self._deadlines), "a transfer that nobody waits for"
        assert list(self._deadlines.values()) == sorted(self._deadlines.values()), "time-outs out of order"
        assert self._combiner.pending <= self.open, "reports of no transfer"


def _column(blocks: Column) -> bytes:
    """Block ids as they travel: int32, little-endian."""
    return blocks.astype("<i4").tobytes()
