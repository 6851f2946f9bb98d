"""Many workers' reports, one answer."""

import itertools

import pytest

from fourstroke.common.errors import BadMessage
from fourstroke.common.types import TransferOutcome
from fourstroke.ipc.messages import TransferReport
from fourstroke.procs.scheduler.transfer.reports import Combiner, Heard, Stages, read_report

RECEIVED, SENT, FAILED, CANCELLED = (
    TransferOutcome.RECEIVED,
    TransferOutcome.SENT,
    TransferOutcome.FAILED,
    TransferOutcome.CANCELLED,
)


def report(rid, worker, outcome=RECEIVED, epoch=0, detail=""):
    return TransferReport(rid, epoch, outcome, worker, detail)


def over(rid, epoch, outcome, detail=""):
    """The answer about a transfer that is over."""
    return TransferReport(rid, epoch, outcome, detail=detail)


def combine(combiner, *reports):
    for each in reports:
        combiner.add((each.rid, each.epoch), each)
    return list(combiner.take_finished().values())


# Combiner


@pytest.mark.parametrize("workers", [0, -1])
def test_there_is_a_worker(workers):
    """Nobody's reports cannot be combined. (AG-1)"""
    with pytest.raises(ValueError, match="workers"):
        Combiner(workers)


def test_a_transfer_is_over_when_every_worker_has_reported():
    """No report: nothing. 2 of 3: nothing. 3 of 3: told, once. (AG-1)"""
    combiner = Combiner(3)
    assert combine(combiner) == []
    assert combine(combiner, report(1, 0), report(1, 2)) == []
    assert combiner.missing(1, 0) == [1]
    assert combine(combiner, report(1, 1)) == [over(1, 0, RECEIVED)]
    assert combiner.missing(1, 0) == []
    assert combine(combiner) == []
    assert combiner.pending == 0


def test_reports_of_different_requests_and_epochs_never_meet():
    """Three workers, three names: nothing is complete; the matching reports complete each. (AG-1)"""
    combiner = Combiner(3)
    names = [(1, 0), (2, 0), (1, 1)]
    assert combine(combiner, *(report(rid, worker, epoch=epoch) for worker, (rid, epoch) in enumerate(names))) == []
    for mine, (rid, epoch) in enumerate(names):
        others = [report(rid, worker, epoch=epoch) for worker in range(3) if worker != mine]
        assert combine(combiner, *others) == [over(rid, epoch, RECEIVED)]


def test_a_failure_wins_but_waits_for_all():
    """In whatever order: told as failed, and only with the last report; the detail names the worker. (AG-2)"""
    for order in itertools.permutations([report(1, 0), report(1, 1, FAILED, detail="refused"), report(1, 2)]):
        combiner = Combiner(3)
        assert combine(combiner, *order[:2]) == []
        assert combine(combiner, order[2]) == [over(1, 0, FAILED, "worker 1: refused")]


@pytest.mark.parametrize("first, second", [(RECEIVED, FAILED), (FAILED, RECEIVED)])
def test_a_worker_that_contradicts_itself_has_failed(first, second):
    """And its second report does not stand for the one that another worker owes. (AG-2)"""
    combiner = Combiner(2)
    assert combine(combiner, report(1, 0, first), report(1, 0, second)) == []
    assert [each.outcome for each in combine(combiner, report(1, 1))] == [FAILED]


def test_cancelled_is_worse_than_done_and_better_than_failed():
    """One worker was stopped: the whole is not there."""
    assert combine(Combiner(2), report(1, 0), report(1, 1, CANCELLED))[0].outcome is CANCELLED
    assert combine(Combiner(2), report(1, 0, FAILED), report(1, 1, CANCELLED))[0].outcome is FAILED


@pytest.mark.parametrize("worker", [-1, 2])
def test_a_report_of_no_worker_is_no_report(worker):
    """Workers are 0 and 1."""
    combiner = Combiner(2)
    assert combiner.add((1, 0), report(1, worker)) is Heard.DROPPED
    assert combiner.missing(1, 0) == [0, 1]


def test_duplicates_after_the_end_are_ignored_as_long_as_it_is_remembered():
    """Two are remembered of three: the oldest may be told again. Reset forgets all. (AG-3)"""
    combiner = Combiner(1, remembered=2)
    assert len(combine(combiner, report(1, 0), report(2, 0), report(3, 0))) == 3
    assert combiner.remembered == 2
    assert combine(combiner, report(3, 0), report(2, 0)) == []
    assert combine(combiner, report(1, 0)) == [over(1, 0, RECEIVED)]
    combiner.reset()
    assert (combiner.remembered, combiner.pending) == (0, 0)
    assert len(combine(combiner, report(3, 0))) == 1


def test_what_was_not_taken_is_not_forgotten():
    """However many transfers end in one tick, each is told once."""
    combiner = Combiner(1, remembered=2)
    reports = [report(rid, 0) for rid in range(5)]
    assert [each.rid for each in combine(combiner, *reports, *reports)] == [0, 1, 2, 3, 4]


# Stages of a pipeline


def test_a_send_is_told_after_the_save_of_the_same_blocks():
    """The save from all stages, then the send that waited. (AG-4)"""
    stages = Stages(2)
    stages.save(1, 0)
    assert stages.saved(report(1, 0, SENT)) == []
    assert stages.moved(over(1, 0, SENT)) == []
    assert stages.saved(report(1, 0, SENT)) == []  # the same stage again
    assert stages.saved(report(1, 1, SENT)) == [over(1, 0, SENT), over(1, 0, SENT)]
    assert stages.saved(report(1, 1, SENT)) == []


def test_sends_without_a_save_and_receives_pass():
    """They are complete when they get here; another epoch's save is none of theirs. (AG-4)"""
    stages = Stages(2)
    stages.save(1, 0)
    for finished in (over(2, 0, SENT), over(1, 1, SENT), over(1, 0, RECEIVED), over(3, 0, FAILED)):
        assert stages.moved(finished) == [finished]


def test_a_failed_save_is_told_once_after_the_last_stage():
    """One stage failed: the others may still read the blocks. (AG-4)"""
    stages = Stages(3)
    stages.save(1, 0)
    assert stages.saved(report(1, 0, FAILED, detail="full")) == []
    assert stages.moved(over(1, 0, SENT)) == []
    assert stages.saved(report(1, 2, SENT)) == []
    assert stages.saved(report(1, 1, SENT)) == [over(1, 0, FAILED, "worker 0: full"), over(1, 0, SENT)]
    assert stages.saved(report(1, 0, FAILED)) == []


def test_a_second_save_under_the_same_name_is_a_save_of_its_own():
    """Reports of the first do not count for it, nor is it taken for a duplicate. (AG-4)"""
    stages = Stages(1)
    for _ in range(2):
        stages.save(1, 0)
        assert stages.saved(report(1, 0, SENT)) == [over(1, 0, SENT)]


# Foreign wires


def test_an_id_may_come_as_text():
    """Decimal text is the number that it spells. (TR-2)"""
    assert read_report("2", 0, 0) == TransferReport(2, 0, RECEIVED)
    assert read_report(0, "3", 2, "1", "why") == TransferReport(0, 3, FAILED, 1, "why")


@pytest.mark.parametrize(
    "values",
    [
        ("", 0, 0),
        ("-1", 0, 0),
        (" 2", 0, 0),
        ("2.0", 0, 0),
        ("٢", 0, 0),  # a digit, but not of ours
        ("9" * 19, 0, 0),
        ("9" * 5000, 0, 0),
        (-1, 0, 0),
        (2**63, 0, 0),
        (True, 0, 0),
        (2.0, 0, 0),
        (None, 0, 0),
        ([2], 0, 0),
        (b"2", 0, 0),
        (2, None, 0),
        (2, 0, 4),
        (2, 0, "0"),
        (2, 0, True),
        (2, 0, {}),
        (2, 0, 0, -1),
        (2, 0, 0, 0, None),
    ],
)
def test_anything_else_is_a_bad_message(values):
    """Nothing that a peer sends raises anything but BadMessage."""
    with pytest.raises(BadMessage):
        read_report(*values)
