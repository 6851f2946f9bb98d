"""Speculation: rows with drafts, results of several tokens, and the statistics of drafts.

A name in brackets is the row of the scheduling rules that the test shows; the set-up is the driver's:
block 4, 10 blocks, 4 rows, budget 64, model length 64, depth 1, unless a test says otherwise.
"""

import numpy as np
import pytest

from fourstroke.common.types import Finish, TransferOutcome
from fourstroke.ipc.messages import RemoteKv, TransferReport
from fourstroke.procs.executor.fake import EOS_TOKEN_ID
from fourstroke.procs.executor.work import work_of
from fourstroke.procs.scheduler.statistics import SpecStats
from fourstroke.procs.scheduler.transfer.connector import Connector, Role

from .driver import Driver, Switch


def drafting(**setup) -> Driver:
    """Three drafts a row; those that the executor invents by itself are all wrong."""
    return Driver(drafts=3, accept=0.0, **setup)


def decoding(tokens: list[int], drafts: list[list[int]]) -> Driver:
    """A decode for each of these tokens, sampled last, with these drafts for it."""
    driver = drafting(blocks=20)
    for rid in range(len(tokens)):
        driver.submit(rid, [5, 6, 7])
    driver.plan()
    driver.settle(*tokens, drafts=drafts)
    return driver


def fed(driver: Driver) -> list[list[int]]:
    """Plan a step, which stays open, and look what the executor would compute: the tokens of each row."""
    step = driver.core.plan(driver.now)
    work = work_of(step.plan, driver.slots[step.plan.slot], driver.runner._cursors)
    return [row.tolist() for row in np.split(work.tokens, work.first[1:])]


# Rows


def test_a_row_is_the_last_token_and_its_drafts():
    """(BT-2)"""
    driver = decoding([50], [[61, 62, 63]])
    assert fed(driver) == [[50, 61, 62, 63]]


@pytest.mark.parametrize(
    "drafts, counts",
    [([[11, 12, 13], [], [31, 32, 33]], [4, 1, 4]), ([[], [], []], [1, 1, 1])],
)
def test_a_decode_without_drafts_has_its_row(drafts, counts):
    """Per row one entry, in order, with its own drafts and no other's. (BT-3)"""
    tokens = [10, 20, 30]
    assert decoding(tokens, drafts).core.plan(0.0).counts.tolist() == counts
    assert fed(decoding(tokens, drafts)) == [[token, *of_row] for token, of_row in zip(tokens, drafts, strict=True)]


def test_the_last_grant_is_cut_to_fit_the_budget():
    """Budget 6, three drafts each: 4 tokens and 2; the drafts that were left out come to nothing."""
    driver = drafting(budget=6)
    driver.submit(1, [5, 6])
    driver.submit(2, [5, 6])
    driver.plan()
    driver.settle(10, 20, drafts=[[11, 12, 13], [21, 22, 23]])
    assert fed(driver) == [[10, 11, 12, 13], [20, 21]]


def test_rows_may_return_different_numbers_of_tokens():
    """Three decodes, the middle one without drafts: 4, 1 and 2 tokens are taken. (RG-25)"""
    driver = decoding([10, 20, 30], [[11, 12, 13], [], [31, 32, 33]])
    assert driver.counts_of(driver.plan()) == [4, 1, 4]
    driver.settle([11, 12, 13, 14], [21], [31, 99])
    assert driver.outputs == {0: [10, 11, 12, 13, 14], 1: [20, 21], 2: [30, 31, 99]}
    assert driver.core.spec_stats.distribution == {0: 0, 1: 1, 2: 0, 3: 1}
    assert driver.ended == {}


def test_a_prefill_that_was_held_up_goes_on_first():
    """At 2 of 4 tokens it gets no decode row while prefills are refused, and then goes before who waits. (BT-4)"""
    gate = Switch()
    driver = drafting(blocks=64, rows=8, budget=256, gate=gate, long_prefill_threshold=2)
    driver.submit(1, [1, 2])
    driver.plan()
    driver.settle(50, drafts=[[]])
    driver.submit(2, [3, 4, 5, 6])
    assert driver.counts_of(driver.plan()) == [1, 2]
    driver.settle(51)

    gate.open = False
    driver.submit(3, [7, 8])
    step = driver.plan()
    assert driver.rids_of(step) == [1]
    driver.settle(52)

    gate.open = True
    step = driver.plan()
    assert driver.rids_of(step) == [1, 2, 3]
    assert (driver.counts_of(step)[1:], step.starts.tolist()[1:]) == ([2, 2], [2, 0])


def received(prompt: list[int], remote: RemoteKv, **setup) -> Driver:
    """A request whose prompt was prefilled elsewhere and has arrived."""
    driver = drafting(connector=Connector(Role(consumer=True)), **setup)
    driver.submit(1, prompt, remote=remote)
    assert driver.plan() is None
    (order,) = driver.orders
    driver.core.transfer_report(TransferReport(1, order.epoch, TransferOutcome.RECEIVED))
    return driver


def test_the_first_row_has_the_token_and_the_drafts_of_the_other_engine():
    """(BT-1)"""
    remote = RemoteKv(prefilled=True, decoded=False, first_token=14, drafts=(101, 102, 103))
    driver = received([6366], remote, block_size=16)
    assert fed(driver) == [[14, 101, 102, 103]]


def test_no_token_of_the_prompt_is_a_draft():
    """The other engine gave a token and no drafts. (RG-31)"""
    driver = received([1, 2, 3, 4], RemoteKv(prefilled=True, decoded=False, first_token=50))
    assert fed(driver) == [[50]]


# Results


def test_what_comes_beyond_max_tokens_is_cut():
    """Depth 2, steps of 1, 4 and 4 tokens: of the third one counts. (RG-8)"""
    driver = drafting(depth=2)
    driver.submit(1, [1, 2, 3, 4], max_tokens=6)
    driver.plan()
    driver.plan()
    driver.settle(50)
    driver.plan()
    driver.settle([51, 52, 53, 54])
    assert driver.ended == {}
    driver.settle([55, 56, 57, 58])
    assert driver.outputs == {1: [50, 51, 52, 53, 54, 55]}
    assert driver.ended[1].finish is Finish.LENGTH


@pytest.mark.parametrize(
    "limits, step, kept, stop_token",
    [
        pytest.param({"stop_sequences": ((60, 61),)}, [EOS_TOKEN_ID, 60, 61], [EOS_TOKEN_ID], -1, id="eos"),
        pytest.param({"stop_token_ids": (99,)}, [99, 60, EOS_TOKEN_ID], [99], 99, id="stop-id"),
        pytest.param({"stop_sequences": ((60, 61),)}, [60, 61, 60, 61], [60, 61], -1, id="stop-sequence"),
    ],
)
def test_the_first_hit_in_a_step_ends_the_request(limits, step, kept, stop_token):
    """The tokens behind it exist nowhere. (RG-9, RG-10, RG-11)"""
    driver = drafting()
    driver.submit(1, [1, 2, 3, 4], ignore_eos=False, **limits)
    driver.plan()
    driver.settle(50, drafts=[[7, 8, 9]])
    driver.plan()
    driver.settle(step)
    assert driver.outputs == {1: [50, *kept]}
    assert (driver.ended[1].finish, driver.ended[1].stop_token) == (Finish.STOP, stop_token)
    assert driver.core.statistics.generation_tokens == 1 + len(kept)


def test_more_tokens_than_drafts_allow_are_an_error_of_the_row():
    """The row ends, the others and the process live."""
    driver = decoding([10, 20], [[11], [21]])
    driver.plan()
    driver.settle([11, 12, 13], [21, 22])
    assert driver.ended[0].finish is Finish.ERROR
    assert driver.outputs == {0: [10], 1: [20, 21, 22]}
    assert list(driver.ended) == [0]


# Statistics


def update(stats: SpecStats, *counts: int) -> None:
    """Steps of one row each that had all drafts and returned so many tokens."""
    for count in counts:
        stats.update(np.array([stats.mtp_k]), np.array([count - 1]))


def test_the_statistics_of_drafts():
    """k 1: one or two tokens come back; k 2: two drafts a step; nothing divided by nothing. (BT-6)"""
    one = SpecStats(1)
    update(one, 1, 2)
    assert (one.distribution, one.anomalies, one.acceptance_rate) == ({0: 1, 1: 1}, 0, 0.5)
    two = SpecStats(2)
    assert (two.total_draft_tokens, two.acceptance_rate) == (0, 0.0)
    update(two, 1)
    assert two.get_statistics() == {
        "mtp_k": 2,
        "total_draft_tokens": 2,
        "distribution": {0: 1, 1: 0, 2: 0},
        "total_accepted": 0,
        "total_steps": 1,
        "acceptance_rate": 0.0,
    }


def test_a_count_that_cannot_be_is_an_anomaly():
    """It is counted with the last key. (BT-7)"""
    stats = SpecStats(2)
    update(stats, 5)
    assert (stats.distribution, stats.anomalies) == ({0: 0, 1: 0, 2: 1}, 1)
