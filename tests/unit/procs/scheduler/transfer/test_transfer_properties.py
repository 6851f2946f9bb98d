"""The connector under any order of events, over faked workers and against the rules written plainly."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fourstroke.common.types import TransferOutcome
from fourstroke.ipc.messages import RemoteKv, TransferReport
from fourstroke.procs.scheduler.transfer.connector import Connector, Role

from ..fake_transfer import FakeTransfer

RECEIVED, SENT, FAILED, CANCELLED = (
    TransferOutcome.RECEIVED,
    TransferOutcome.SENT,
    TransferOutcome.FAILED,
    TransferOutcome.CANCELLED,
)
BOTH = Role(consumer=True, producer=True)
ELSEWHERE = RemoteKv(prefilled=True, decoded=False, host="far:1", transfer=42)
FOR_OTHERS = RemoteKv(prefilled=False, decoded=True)
BLOCKS = np.array([3, 1, 4], np.int32)


@settings(max_examples=200, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    workers=st.integers(1, 3),
    starts=st.lists(st.tuples(st.booleans(), st.integers(0, 3), st.none() | st.integers(0, 6)), max_size=12),
)
def test_each_transfer_is_told_once_after_its_last_worker_let_go(seed, workers, starts):
    """Over workers that are done, late, fail, repeat themselves or never answer, and cancels at any time.

    When a transfer is told, no worker touches its blocks, so they may be given away.
    """
    connector = Connector(BOTH, workers, timeout_s=8)
    fake = FakeTransfer(workers, seed=seed)
    started, cancels, told = {}, {}, []
    now = 0

    def turn():
        connector.due(now)
        for key in [key for key, due in cancels.items() if due <= now]:
            connector.cancel(*key)
            del cancels[key]
        fake.take(connector.take_orders())
        for report in fake.tick():
            connector.hear(report)
            connector.check()
        for finished in connector.take_finished():
            key = finished.rid, finished.epoch
            assert not fake.busy & set(started[key].tolist())
            told.append(key)

    for rid, (receives, wait, cancel) in enumerate(starts):
        key, blocks = (rid, rid % 2), np.arange(3 * rid, 3 * rid + 3, dtype=np.int32)
        started[key] = blocks
        start, remote = (connector.receive, ELSEWHERE) if receives else (connector.send, FOR_OTHERS)
        start(*key, blocks, remote, now)
        if cancel is not None:
            cancels[key] = now + cancel
        for _ in range(wait):
            now += 1
            turn()
    for _ in range(60):
        now += 1
        turn()
    assert sorted(told) == sorted(started)
    assert (connector.open, connector.next_due, fake.busy) == (0, None, set())


keys = st.tuples(st.integers(0, 2), st.integers(0, 1))
events = st.one_of(
    st.tuples(st.just("report"), keys, st.sampled_from(list(TransferOutcome)), st.integers(-1, 2)),
    st.tuples(st.just("start"), keys, st.booleans()),
    st.tuples(st.just("cancel"), keys),
    st.tuples(st.just("wait"), st.integers(1, 6)),
    st.tuples(st.just("take")),
)


class Model:
    """The rules, slowly: every transfer with all the reports that it has had."""

    def __init__(self, workers):
        self.workers, self.now = workers, 0
        self.open = {}

    def start(self, key, receives):
        self.open[key] = {"receives": receives, "heard": {}, "since": self.now, "cancel": False, "overdue": False}

    def report(self, key, outcome, worker):
        transfer = self.open.get(key)
        wrong = SENT if transfer and transfer["receives"] else RECEIVED
        if transfer is not None and outcome is not wrong and 0 <= worker < self.workers and not self.complete(transfer):
            transfer["heard"].setdefault(worker, set()).add(outcome)

    def complete(self, transfer):
        return len(transfer["heard"]) == self.workers

    def wait(self, seconds):
        self.now += seconds
        for transfer in self.open.values():
            unhurt = all(not {FAILED, CANCELLED} & heard for heard in transfer["heard"].values())
            overdue = self.now - transfer["since"] >= 10
            if overdue and unhurt and not transfer["cancel"] and not self.complete(transfer):
                transfer["overdue"] = True

    def take(self):
        done = {key: transfer for key, transfer in self.open.items() if self.complete(transfer)}
        self.open = {key: transfer for key, transfer in self.open.items() if key not in done}
        return {key: self.outcome(transfer) for key, transfer in done.items()}

    def outcome(self, transfer):
        if transfer["cancel"]:
            return CANCELLED
        success = RECEIVED if transfer["receives"] else SENT
        good = all(heard == {success} for heard in transfer["heard"].values())
        return success if good and not transfer["overdue"] else FAILED


@settings(max_examples=300, deadline=None)
@given(workers=st.integers(1, 2), script=st.lists(events, max_size=60))
def test_any_order_of_events_gives_what_the_rules_say(workers, script):
    """Starts, reports of any kind from anybody, cancels and time: told is what a plain model tells.

    Nothing is told twice or before all workers have reported, nothing is combined over epochs. (AG-1, TR-12)
    """
    connector, model = Connector(BOTH, workers, timeout_s=10), Model(workers)
    for what, *values in script:
        match what:
            case "start":
                key, receives = values
                if key in model.open:
                    continue
                model.start(key, receives)
                start, remote = (connector.receive, ELSEWHERE) if receives else (connector.send, FOR_OTHERS)
                start(*key, BLOCKS, remote, model.now)
            case "report":
                key, outcome, worker = values
                model.report(key, outcome, worker)
                connector.hear(TransferReport(*key, outcome, worker))
            case "cancel":
                connector.cancel(*values[0])
                if values[0] in model.open:
                    model.open[values[0]]["cancel"] = True
            case "wait":
                model.wait(values[0])
                connector.due(model.now)
            case "take":
                told = connector.take_finished()
                assert {(finished.rid, finished.epoch): finished.outcome for finished in told} == model.take()
                assert connector.open == len(model.open)
        connector.check()
