"""Queues, admission and chunks: which requests wait, which run, and how many tokens of each a step has.

A name in brackets is the row of the scheduling rules that the test shows; the set-up is the driver's:
block 4, 10 blocks, 4 rows, budget 64, model length 64, depth 1, unless a test says otherwise.
"""

import re

import pytest

from fourstroke.common.types import Finish, TransferOutcome
from fourstroke.ipc.messages import RemoteKv, TransferReport
from fourstroke.procs.scheduler.planning.forecast import Forecast
from fourstroke.procs.scheduler.planning.prefills import chunk_size
from fourstroke.procs.scheduler.request import Phase
from fourstroke.procs.scheduler.transfer.connector import Connector, Role

from .driver import Driver

# Who is there


def test_an_empty_scheduler_plans_nothing():
    """Without requests there is no step, nothing ahead and no work. (QA-1)"""
    driver = Driver()
    assert driver.plan() is None
    assert driver.core.forecast() == Forecast(0, 0, 0, 0)
    assert driver.core.counts() == (0, 0, 0)
    assert not driver.core.alive


@pytest.mark.parametrize("prompts", [[[1, 2, 3]], [[1], [2]]])
def test_what_was_submitted_is_alive_and_unfinished(prompts):
    """(QA-2)"""
    driver = Driver()
    for rid, prompt in enumerate(prompts):
        driver.submit(rid, prompt)
    assert driver.core.alive
    assert sum(driver.core.counts()) == len(prompts)


def test_a_request_waits_until_a_plan_admits_it():
    """(running, waiting) is (0, 1) after the submit and (1, 0) after the plan, of one prefill row. (QA-3, QA-5)"""
    driver = Driver()
    driver.submit(1, [1, 2, 3, 4])
    assert driver.core.counts() == (0, 1, 0)
    step = driver.plan()
    assert (driver.counts_of(step), step.decodes.tolist()) == ([4], [False])
    assert driver.core.counts() == (1, 0, 0)
    assert driver.request(1).phase is Phase.RUNNING


def test_a_held_send_is_work():
    """The request has ended and another engine fetches its KV: alive until that is done. (QA-4)"""
    driver = Driver(connector=Connector(Role(producer=True)))
    driver.submit(1, [1, 2, 3, 4], max_tokens=1, remote=RemoteKv(prefilled=False, decoded=True))
    driver.plan()
    driver.settle()
    assert driver.plan() is None
    assert driver.core.counts() == (0, 0, 0)
    assert driver.core.alive
    (order,) = driver.orders
    driver.core.transfer_report(TransferReport(1, order.epoch, TransferOutcome.SENT))
    driver.plan()
    assert not driver.core.alive


# Admission


def test_no_more_rows_than_max_num_seqs():
    """Two rows, five prompts: two prefill rows. (QA-6)"""
    driver = Driver(rows=2, budget=1000, blocks=100)
    for rid in range(5):
        driver.submit(rid, [1, 2, 3, 4])
    step = driver.plan()
    assert (driver.counts_of(step), step.decodes.any()) == ([4, 4], False)
    assert driver.core.counts() == (2, 3, 0)


def test_a_prompt_that_the_pool_can_never_hold_is_rejected_at_once():
    """One block: a prompt of 4 tokens is planned; one of 5 ends, rejected. (QA-8)"""
    driver = Driver(blocks=1)
    driver.submit(1, [1, 2, 3, 4])
    driver.submit(2, [1, 2, 3, 4, 5])
    assert driver.ended[2].finish is Finish.REJECTED
    assert driver.counts_of(driver.plan()) == [4]


@pytest.mark.parametrize(
    "setup, length, numbers",
    [
        ({"blocks": 100}, 64, [64, 64]),
        ({"blocks": 100}, 65, [65, 64]),
        ({"chunked": False, "budget": 8}, 9, [9, 8]),
        ({"blocks": 2}, 9, [3, 2]),
    ],
    ids=["as-long-as-the-model", "longer", "above-the-budget", "above-the-pool"],
)
def test_a_request_that_can_never_run_is_rejected_with_both_numbers(setup, length, numbers):
    """It reaches no queue, has one last word, and the request behind it is planned. (QA-13)"""
    driver = Driver(**setup)
    for request in driver.make(1, [1] * length):
        driver.core.submit(request, driver.now)
    assert driver.core.counts() == (0, 0, 0)
    assert driver.core.alive, "the last word was not taken"
    driver.take()
    assert not driver.core.alive
    assert driver.ended[1].finish is Finish.REJECTED
    assert [int(number) for number in re.findall(r"\d+", driver.ended[1].detail)] == numbers
    driver.submit(2, [1, 2])
    assert driver.rids_of(driver.plan()) == [2]


def test_priorities_order_admission():
    """Priorities 5, 0, 0 and one row: the second runs, then the third, then the first. (QA-24)"""
    driver = Driver(rows=1)
    for rid, priority in ((1, 5), (2, 0), (3, 0)):
        driver.submit(rid, [1, 2], max_tokens=3, priority=priority)
    driver.run()
    assert list(driver.ended) == [2, 3, 1]


def delayed(*arrivals_ms: int) -> Driver:
    """Delay factor 1, the last prefill took 100 ms and a decode 1 ms; others arrived so long before now."""
    driver = Driver(delay_factor=1.0)
    driver.now = 5.0
    driver.submit(1, [1, 2, 3, 4])
    for settled_s in (5.1, 5.101):
        driver.plan()
        driver.now = settled_s
        driver.settle()
    for rid, arrived_ms in enumerate(arrivals_ms, 2):
        driver.now = 10 - arrived_ms / 1000
        driver.submit(rid, [5, 6])
    driver.now = 10.0
    return driver


@pytest.mark.parametrize("arrived_ms, planned", [(50, [1]), (150, [1, 2])])
def test_a_fresh_request_waits_as_long_as_the_last_prefill_took(arrived_ms, planned):
    """(QA-23)"""
    driver = delayed(arrived_ms)
    assert driver.rids_of(driver.plan()) == planned


def test_the_delay_is_judged_once_a_plan():
    """When the one who has waited long enough is admitted, so is the one who has not. (QA-23)"""
    driver = delayed(150, 50)
    assert driver.rids_of(driver.plan()) == [1, 2, 3]


def test_the_delay_holds_nobody_up_when_nothing_runs():
    """A fresh request is admitted at once, however long the last prefill took."""
    driver = delayed()
    driver.abort(1)
    driver.submit(2, [5, 6])
    assert driver.rids_of(driver.plan()) == [2]


# Chunks


def test_the_budget_is_shared_by_the_prompts_of_a_step():
    """Budget 6, two prompts of 4: 4 and 2 tokens. (QA-7)"""
    driver = Driver(budget=6, blocks=100)
    driver.submit(1, [1, 2, 3, 4])
    driver.submit(2, [5, 6, 7, 8])
    assert driver.counts_of(driver.plan()) == [4, 2]


def test_a_long_prompt_is_prefilled_in_chunks():
    """Budget 6, ten tokens: 0..5 without a token, then 6..9, which samples. (QA-9)"""
    driver = Driver(budget=6, blocks=100)
    driver.submit(1, list(range(10)))
    step = driver.plan()
    assert driver.tokens_of(step) == [[0, 1, 2, 3, 4, 5]]
    assert (step.starts.tolist(), step.samples.tolist()) == ([0], [False])
    driver.settle()
    assert driver.outputs == {}
    assert driver.core.table.committed[step.rows].tolist() == [6]
    step = driver.plan()
    assert driver.tokens_of(step) == [[6, 7, 8, 9]]
    assert (step.starts.tolist(), step.samples.tolist()) == ([6], [True])


def test_no_slivers():
    """A prompt is cut at a multiple of 64, and what is left of the step stays empty. (QA-14)"""
    for budget, prompts in ((192, 2), (200, 3)):
        driver = Driver(budget=budget, blocks=400, max_model_len=1024)
        for rid in range(prompts):
            driver.submit(rid, [1] * 128)
        assert driver.counts_of(driver.plan()) == [128, 64]


@pytest.mark.parametrize(
    "new, left, block, size",
    [
        (200, 100, 16, 64),
        (50, 200, 16, 50),
        (200, 100, 4, 64),
        (500, 300, 128, 256),
        (500, 64, 128, 64),
        (200, 128, 16, 128),
        (100, 100, 16, 100),
        (200, 100, 1, 64),
        (500, 200, 128, 128),
    ],
)
def test_chunk_size(new, left, block, size):
    """A cut is at a multiple of 64 or of the block; a budget below that is used up. (QA-15)"""
    assert chunk_size(new, left, block, first=True, budget=left) == size


@pytest.mark.parametrize("threshold, prompt, size", [(0, 20, 20), (8, 20, 8), (16, 5, 5)])
def test_a_threshold_bounds_the_chunk_of_a_long_prompt(threshold, prompt, size):
    """(QA-16)"""
    driver = Driver(budget=1000, blocks=100, long_prefill_threshold=threshold)
    driver.submit(1, [1] * prompt)
    assert driver.counts_of(driver.plan()) == [size]


@pytest.mark.parametrize(
    "setup, prompt, prompts, sizes",
    [
        ({"long_prefill_threshold": 8}, 20, 2, [8, 8]),
        ({"long_prefill_threshold": 128, "budget": 192}, 320, 2, [128, 64]),
        ({"long_prefill_threshold": 8, "chunked": False}, 20, 1, [20]),
    ],
)
def test_a_threshold_leaves_room_for_others(setup, prompt, prompts, sizes):
    """It holds for each prompt of a step; what does not fit is cut as ever; without chunks there is none. (QA-17)"""
    driver = Driver(blocks=400, max_model_len=1024, **setup)
    for rid in range(prompts):
        driver.submit(rid, [1] * prompt)
    assert driver.counts_of(driver.plan()) == sizes


def test_a_chunk_of_the_threshold_is_followed_by_the_next():
    """Budget and threshold 8, 20 tokens: 8, and 8 from position 8. (QA-18)"""
    driver = Driver(budget=8, long_prefill_threshold=8)
    driver.submit(1, [1] * 20)
    step = driver.plan()
    assert (driver.counts_of(step), step.starts.tolist()) == ([8], [0])
    driver.settle()
    step = driver.plan()
    assert (driver.counts_of(step), step.starts.tolist()) == ([8], [8])


@pytest.mark.parametrize("passed", [7, 8])
def test_a_prompt_that_goes_whole_lets_others_pass_8_times(passed):
    """Chunking off, a decode in each step, budget 8: a prompt of 8 is served when it goes first."""
    driver = Driver(chunked=False, budget=8, blocks=100)
    driver.submit(0, [1])
    driver.turn()
    driver.submit(1, [2] * 8)
    for rid in range(2, 2 + passed):
        driver.submit(rid, [3], max_tokens=1)
        assert driver.rids_of(driver.plan()) == [0, rid]
        driver.settle()
    driver.submit(99, [3], max_tokens=1)
    assert driver.rids_of(driver.plan()) == ([0, 99] if passed < 8 else [1])


# Decodes


def test_a_decode_row_carries_one_token_at_the_next_position():
    """After the prefill of 4 tokens the decode is at position 4. (QA-10)"""
    driver = Driver()
    driver.submit(1, [1, 2, 3, 4])
    driver.plan()
    driver.settle(5)
    step = driver.plan()
    assert (driver.counts_of(step), step.decodes.tolist(), step.starts.tolist()) == ([1], [True], [4])


def test_decodes_and_chunks_share_a_step():
    """Budget 64, one decode, a fresh prompt of 200: 1 and 63 in one step. (QA-20)"""
    driver = Driver(budget=64, blocks=100, max_model_len=256)
    driver.submit(1, [1, 2, 3, 4])
    driver.plan()
    driver.settle()
    driver.submit(2, [7] * 200)
    step = driver.plan()
    assert (driver.counts_of(step), step.decodes.tolist()) == ([1, 63], [True, False])


def test_the_forecast_is_what_the_plan_does():
    """One prompt of 4 tokens, then one decode; looking ahead changes nothing. (QA-19)"""
    driver = Driver()
    driver.submit(1, [1, 2, 3, 4])
    for ahead, counts in ((Forecast(1, 4, 0, 0), [4]), (Forecast(0, 0, 1, 1), [1])):
        assert driver.core.forecast() == driver.core.forecast() == ahead
        assert driver.counts_of(driver.plan()) == counts
        driver.settle()


def test_prefills_first_starve_no_decode():
    """A prompt that fills the step comes with every step: the decode never waits for more than 8 steps.

    In the 9th it goes first. The prompt of that step has one token left then, and in the 10th the next prompt does not
    fit behind it: the decode does. (QA-21)
    """
    driver = Driver(blocks=400, max_model_len=128, prefill_first=True)
    driver.submit(0, [1, 2, 3, 4])
    driver.turn()
    served = []
    for step in range(1, 41):
        driver.submit(step, [5] * 64, max_tokens=1)
        if 0 in driver.rids_of(driver.plan()):
            served.append(step)
        driver.settle()
    assert served == [9, 10, 19, 20, 29, 30, 39, 40]


def test_decodes_that_the_budget_cannot_hold_take_turns():
    """Budget 4, a draft each: two of four decodes a step, each served twice in 4 steps. (QA-22)"""
    driver = Driver(budget=4, drafts=1, accept=0.0)
    for rid in range(4):
        driver.submit(rid, [1 + rid])
    assert driver.counts_of(driver.plan()) == [1, 1, 1, 1]
    driver.settle(20, 21, 22, 23, drafts=[[30]] * 4)
    served = []
    for _ in range(4):
        step = driver.plan()
        assert driver.counts_of(step) == [2, 2]
        served += driver.rids_of(step)
        driver.settle(40, 41, drafts=[[30]] * 2)
    assert sorted(served) == [0, 0, 1, 1, 2, 2, 3, 3]


def test_the_budget_bounds_the_rows_too():
    """Budget 2, four requests: two run, since a step must hold every decode; all end."""
    driver = Driver(budget=2, blocks=40)
    for rid in range(4):
        driver.submit(rid, [1], max_tokens=5)
    while driver.turn():
        assert driver.core.counts().running <= 2
    assert {len(tokens) for tokens in driver.outputs.values()} == {5}
