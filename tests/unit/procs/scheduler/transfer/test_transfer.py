"""The connector: each transfer that starts is told once, when nobody touches its blocks any more."""

import numpy as np
import pytest

from fourstroke.common.types import TransferAction, TransferOutcome
from fourstroke.ipc.messages import KvTransfer, RemoteKv, TransferReport
from fourstroke.procs.scheduler.transfer.connector import DRAIN_S, Connector, Role

RECEIVED, SENT, FAILED, CANCELLED = (
    TransferOutcome.RECEIVED,
    TransferOutcome.SENT,
    TransferOutcome.FAILED,
    TransferOutcome.CANCELLED,
)
CONSUMER, PRODUCER, BOTH = Role(consumer=True), Role(producer=True), Role(consumer=True, producer=True)
ELSEWHERE = RemoteKv(prefilled=True, decoded=False, host="far:1", transfer=42, blocks=b"\1\0\0\0")
FOR_OTHERS = RemoteKv(prefilled=False, decoded=True)
BLOCKS = np.array([3, 1, 4], np.int32)


def receiving(*rids, workers=1, role=CONSUMER, remote=ELSEWHERE):
    """A connector that receives for these requests since time 0; its orders are taken."""
    connector = Connector(role, workers)
    for rid in rids:
        connector.receive(rid, 0, BLOCKS, remote, now=0)
    connector.take_orders()
    return connector


def over(rid, epoch, outcome, detail=""):
    """The answer about a transfer that is over."""
    return TransferReport(rid, epoch, outcome, detail=detail)


def hear(connector, *reports):
    for report in reports:
        connector.hear(TransferReport(*report))
        connector.check()
    return connector.take_finished()


# Starting


@pytest.mark.parametrize("role, tokens", [(CONSUMER, 100), (BOTH, 100), (PRODUCER, 0), (Role(), 0)])
def test_match_says_the_same_every_time(role, tokens):
    """A consumer can have the whole prompt from elsewhere, if it is there. Asking starts nothing. (AG-5)"""
    connector = Connector(role)
    assert [connector.match(100, ELSEWHERE) for _ in range(2)] == [tokens, tokens]
    assert connector.match(100, None) == connector.match(100, FOR_OTHERS) == 0
    assert (connector.open, connector.take_orders(), connector.next_due) == (0, [], None)


def test_a_receive_is_ordered_once():
    """The order has the blocks and where their contents are; taking it drains the queue. (AG-6)"""
    connector = Connector(CONSUMER)
    connector.receive(7, 2, BLOCKS, ELSEWHERE, now=0)
    order = KvTransfer(7, 2, TransferAction.RECEIVE, BLOCKS.tobytes(), ELSEWHERE)
    assert (connector.take_orders(), connector.take_orders()) == ([order], [])
    assert hear(connector, (7, 2, RECEIVED)) == [over(7, 2, RECEIVED)]
    assert (connector.open, connector.next_due) == (0, None)


def test_a_producer_tells_where_the_kv_is_and_orders_the_send_once():
    """Transfer id 42: in the order and in what the final message tells. (AG-6, RG-22)"""
    connector = Connector(PRODUCER, host="here:9", first_transfer=42)
    told = connector.send(7, 2, BLOCKS, FOR_OTHERS, now=0)
    assert told == RemoteKv(prefilled=True, decoded=False, host="here:9", transfer=42, blocks=BLOCKS.tobytes())
    (order,) = connector.take_orders()
    assert (order.action, order.blocks, order.remote.transfer) == (TransferAction.SEND, BLOCKS.tobytes(), 42)
    assert (connector.take_orders(), connector.open) == ([], 1)
    assert hear(connector, (7, 2, SENT)) == [over(7, 2, SENT)]
    assert (connector.open, connector.next_due) == (0, None)


def test_transfer_ids_are_the_peers_or_never_used_twice():
    """An id that the request brought is kept."""
    connector = Connector(PRODUCER)
    brought = RemoteKv(prefilled=False, decoded=True, transfer=5)
    told = [
        connector.send(rid, 0, BLOCKS, remote, now=0) for rid, remote in enumerate([FOR_OTHERS, brought, FOR_OTHERS])
    ]
    assert [remote.transfer for remote in told] == [1, 5, 2]


@pytest.mark.parametrize(
    "role, blocks, remote",
    [
        (CONSUMER, BLOCKS, FOR_OTHERS),
        (PRODUCER, BLOCKS, None),
        (PRODUCER, BLOCKS, ELSEWHERE),
        (PRODUCER, BLOCKS[:0], FOR_OTHERS),
    ],
)
def test_what_nobody_fetches_is_not_held(role, blocks, remote):
    """No producer, no request for it, or no blocks: None, and nothing starts."""
    connector = Connector(role)
    assert connector.send(1, 0, blocks, remote, now=0) is None
    assert (connector.open, connector.take_orders()) == (0, [])


def test_a_request_that_ends_while_it_receives_does_not_send():
    """Whatever a client asks for, blocks that are being written are nobody's to read."""
    connector = receiving(1, role=BOTH)
    connector.cancel(1, 0)
    assert connector.send(1, 0, BLOCKS, RemoteKv(prefilled=True, decoded=True), now=1) is None
    assert hear(connector, (1, 0, CANCELLED)) == [over(1, 0, CANCELLED)]


def test_received_and_then_sent_under_the_same_name():
    """Two transfers, two answers; a late duplicate of the first does not end the second."""
    connector = receiving(1, role=BOTH)
    assert hear(connector, (1, 0, RECEIVED)) == [over(1, 0, RECEIVED)]
    assert connector.send(1, 0, BLOCKS, FOR_OTHERS, now=1) is not None
    assert hear(connector, (1, 0, RECEIVED)) == []
    assert hear(connector, (1, 0, SENT)) == [over(1, 0, SENT)]
    assert connector.dropped == 1


# Reports


def test_reports_that_fit_nothing_are_counted_and_dropped():
    """Unknown id, old epoch, duplicate, wrong role, no worker: none raises, none changes anything. (TR-12)"""
    connector = receiving(1, workers=2)
    assert hear(connector, (9, 0, RECEIVED), (1, 1, RECEIVED), (1, 0, SENT), (1, 0, RECEIVED, 2)) == []
    assert hear(connector, (1, 0, RECEIVED, 0), (1, 0, RECEIVED, 0)) == []
    assert (connector.dropped, connector.open) == (5, 1)
    assert hear(connector, (1, 0, RECEIVED, 1), (1, 0, RECEIVED, 1)) == [over(1, 0, RECEIVED)]
    assert hear(connector, (1, 0, RECEIVED, 1)) == []
    assert (connector.dropped, connector.open) == (7, 0)


def test_a_failure_stops_the_others_and_is_told_when_all_have_answered():
    """One CANCEL, whatever else is reported. (AG-2)"""
    connector = receiving(1, workers=3)
    assert hear(connector, (1, 0, FAILED, 1, "refused")) == []
    assert connector.take_orders() == [KvTransfer(1, 0, TransferAction.CANCEL)]
    assert connector.next_due is None
    assert hear(connector, (1, 0, CANCELLED, 0)) == []
    assert connector.take_orders() == []
    assert hear(connector, (1, 0, RECEIVED, 2)) == [over(1, 0, FAILED, "worker 1: refused")]


def test_a_worker_that_gives_up_stops_the_others():
    """As one that fails."""
    connector = receiving(1, workers=2)
    assert hear(connector, (1, 0, CANCELLED, 0)) == []
    assert connector.take_orders() == [KvTransfer(1, 0, TransferAction.CANCEL)]
    assert [finished.outcome for finished in hear(connector, (1, 0, RECEIVED, 1))] == [FAILED]


def test_a_failure_of_the_only_worker_needs_no_cancel():
    """There is nobody left to stop."""
    connector = receiving(1)
    assert hear(connector, (1, 0, FAILED)) == [over(1, 0, FAILED)]
    assert connector.take_orders() == []


def test_a_worker_that_gives_up_has_failed():
    """CANCELLED is told only where it was asked for."""
    (finished,) = hear(receiving(1), (1, 0, CANCELLED))
    assert finished.outcome is FAILED and finished.detail


# Time-outs and cancels


def test_a_time_out_is_told_when_the_cancel_is_confirmed():
    """Due at 60 s, not before; the blocks stay fenced until the workers let go of them. (TR-11)"""
    connector = receiving(1, workers=2)
    hear(connector, (1, 0, RECEIVED, 0))
    connector.due(59.9)
    assert (connector.take_orders(), connector.next_due) == ([], 60)
    connector.due(60)
    connector.due(1000)
    assert connector.take_orders() == [KvTransfer(1, 0, TransferAction.CANCEL)]
    assert (connector.take_finished(), connector.open, connector.next_due) == ([], 1, None)
    (finished,) = hear(connector, (1, 0, CANCELLED, 1))
    assert finished.outcome is FAILED
    assert "60 s" in finished.detail and finished.detail.endswith("worker 1")


def test_time_outs_come_in_the_order_of_the_starts():
    """Whoever reports in time has none."""
    connector = Connector(CONSUMER, timeout_s=10)
    for rid in range(4):
        connector.receive(rid, 0, BLOCKS, ELSEWHERE, now=rid)
    connector.take_orders()
    assert connector.next_due == 10
    hear(connector, (0, 0, RECEIVED))
    assert connector.next_due == 11
    connector.due(12)
    assert [order.rid for order in connector.take_orders()] == [1, 2]
    assert connector.next_due == 13


def test_one_that_waits_for_long_keeps_no_others():
    """However many come and go behind it; its own time-out stays."""
    connector = Connector(CONSUMER, timeout_s=10)
    for rid in range(5000):
        connector.receive(rid, 0, BLOCKS, ELSEWHERE, now=rid / 5000)
        if rid:
            connector.hear(TransferReport(rid, 0, RECEIVED))
            connector.take_finished()
    assert len(connector._waiting) < 2000
    connector.check()
    assert (connector.open, connector.next_due) == (1, 10)


@pytest.mark.parametrize("answer", [CANCELLED, RECEIVED, FAILED])
def test_a_cancelled_transfer_is_told_as_cancelled(answer):
    """Whatever the worker answers; it is told to stop once, and a time-out adds nothing."""
    connector = receiving(1)
    connector.cancel(1, 0)
    connector.cancel(1, 0)
    connector.due(1000)
    assert connector.take_orders() == [KvTransfer(1, 0, TransferAction.CANCEL)]
    assert connector.take_finished() == []
    assert hear(connector, (1, 0, answer)) == [over(1, 0, CANCELLED)]


def test_a_cancel_of_what_has_ended_orders_nothing():
    """Between the last report and its telling, it is still told as cancelled; afterwards nothing happens."""
    connector = receiving(1, 2)
    connector.hear(TransferReport(1, 0, RECEIVED))
    connector.cancel(1, 0)
    connector.check()
    assert connector.take_finished() == [over(1, 0, CANCELLED)]
    hear(connector, (2, 0, RECEIVED))
    connector.cancel(2, 0)
    connector.cancel(2, 1)
    assert (connector.take_orders(), connector.take_finished(), connector.open) == ([], [], 0)


def test_new_workers_know_of_no_transfer():
    """Nothing is open, ordered or told any more; what old workers still say is dropped, and names can be used again."""
    connector = receiving(1, 2, 3, workers=2)
    for report in ((1, 0, RECEIVED, 0), (2, 0, RECEIVED, 0), (2, 0, RECEIVED, 1)):
        connector.hear(TransferReport(*report))
    connector.cancel(3, 0)
    connector.forget()
    connector.check()
    assert (connector.open, connector.next_due, connector.take_orders(), connector.take_finished()) == (0, None, [], [])
    assert hear(connector, (1, 0, RECEIVED, 1)) == []
    connector.receive(1, 0, BLOCKS, ELSEWHERE, now=0)
    assert hear(connector, (1, 0, RECEIVED, 1)) == []
    assert hear(connector, (1, 0, RECEIVED, 0)) == [over(1, 0, RECEIVED)]


def test_a_held_send_is_pending_until_it_is_done_or_patience_ends():
    """Told once, however often one asks; at exit it is waited for, 2 s at most. (AG-8, QA-4)"""
    connector = Connector(PRODUCER)
    connector.send(1, 0, BLOCKS, FOR_OTHERS, now=0)
    assert connector.take_finished() == connector.take_finished() == []
    assert not connector.drained(since=5, now=5 + DRAIN_S / 2)
    assert connector.drained(since=5, now=5 + DRAIN_S)
    connector.hear(TransferReport(1, 0, SENT))
    assert connector.open == 1, "it is not told yet"
    assert (len(connector.take_finished()), connector.take_finished()) == (1, [])
    assert connector.drained(since=5, now=5)


def test_without_transfer_there_is_nothing_to_wait_for():
    """An engine without a role starts nothing and is drained at once. (AG-8)"""
    connector = Connector(Role())
    assert connector.send(1, 0, BLOCKS, FOR_OTHERS, now=0) is None
    connector.due(1000)
    assert (connector.take_orders(), connector.take_finished(), connector.next_due) == ([], [], None)
    assert connector.drained(since=0, now=0)


# Nonces


@pytest.mark.parametrize("nonce", [41, None, 0, -42])
def test_a_write_without_the_right_nonce_is_not_believed(nonce):
    """It may be one of an earlier transfer into the same blocks. (AG-9)"""
    connector = receiving(1)
    connector.written(1, 0, 0, nonce)
    assert (connector.take_finished(), connector.dropped, connector.open) == ([], 1, 1)


def test_a_write_with_the_right_nonce_counts_once():
    """As a worker's report does; duplicates and what comes late are ignored. (AG-9)"""
    connector = receiving(1, workers=2)
    for worker in (0, 0, 1, 1):
        connector.written(1, 0, worker, 42)
    assert connector.take_finished() == [over(1, 0, RECEIVED)]
    connector.written(1, 0, 0, 42)
    assert (connector.take_finished(), connector.dropped) == ([], 3)


@pytest.mark.parametrize("nonce", [0, None])
def test_a_peer_without_nonces_is_believed(nonce):
    """Its transfer has the id 0. (AG-9)"""
    connector = receiving(1, remote=RemoteKv(prefilled=True, decoded=False))
    connector.written(1, 0, 0, nonce)
    assert connector.take_finished() == [over(1, 0, RECEIVED)]


def test_a_late_write_lifts_the_fence_and_nothing_more():
    """After a time-out the blocks are fenced until it is done; the answer stays. (AG-9)"""
    connector = receiving(1)
    connector.due(60)
    assert (connector.take_finished(), connector.open) == ([], 1)
    connector.written(1, 0, 0, 42)
    assert [finished.outcome for finished in connector.take_finished()] == [FAILED]


def test_a_write_into_what_is_sent_is_dropped():
    """Nobody writes into blocks that others read."""
    connector = Connector(PRODUCER)
    told = connector.send(1, 0, BLOCKS, FOR_OTHERS, now=0)
    connector.written(1, 0, 0, told.transfer)
    assert (connector.take_finished(), connector.dropped) == ([], 1)
