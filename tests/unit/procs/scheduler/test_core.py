"""The scheduler's core, event by event, over the fake executor.

A name in brackets is the row of the scheduling rules that the test shows; the set-up is the driver's:
block 4, 10 blocks, 4 rows, budget 64, model length 64, depth 1, unless a test says otherwise.
"""

import numpy as np
import pytest

from fourstroke.common.types import Finish
from fourstroke.ipc.messages import RowError
from fourstroke.procs.executor.fake import EOS_TOKEN_ID, continuation
from fourstroke.procs.scheduler.planner import chunk_size

from .driver import Driver

# Queues, admission, chunks


def test_an_empty_scheduler_plans_nothing():
    """Without requests there is no step and no work. (QA-1)"""
    driver = Driver()
    assert driver.plan() is None
    assert driver.core.counts() == (0, 0)
    assert not driver.core.has_work


def test_a_request_waits_until_a_plan_admits_it():
    """(running, waiting) is (0, 1) after the submit and (1, 0) after the plan. (QA-2, QA-3, QA-5)"""
    driver = Driver()
    driver.submit(1, [1, 2, 3, 4])
    assert driver.core.counts() == (0, 1)
    assert driver.counts_of(driver.plan()) == [4]
    assert driver.core.counts() == (1, 0)


def test_no_more_rows_than_max_num_seqs():
    """Two rows, five prompts: two are admitted. (QA-6)"""
    driver = Driver(rows=2, budget=1000, blocks=100)
    for rid in range(5):
        driver.submit(rid, [1, 2, 3, 4])
    assert driver.counts_of(driver.plan()) == [4, 4]
    assert driver.core.counts() == (2, 3)


def test_the_budget_is_shared_by_the_prompts_of_a_step():
    """Budget 6, two prompts of 4: 4 and 2 tokens. (QA-7)"""
    driver = Driver(budget=6, blocks=100)
    driver.submit(1, [1, 2, 3, 4])
    driver.submit(2, [5, 6, 7, 8])
    assert driver.counts_of(driver.plan()) == [4, 2]


def test_a_prompt_that_the_pool_can_never_hold_is_rejected_at_once():
    """One block: a prompt of 5 tokens ends, rejected; one of 4 is planned. (QA-8)"""
    driver = Driver(blocks=1)
    driver.submit(1, [1, 2, 3, 4, 5])
    driver.submit(2, [1, 2, 3, 4])
    assert driver.ended[1].finish is Finish.REJECTED
    assert driver.counts_of(driver.plan()) == [4]


@pytest.mark.parametrize("length", [64, 65])
def test_a_prompt_as_long_as_the_model_is_rejected_with_both_numbers(length):
    """It never reaches a queue, and the request behind it is planned. (QA-13)"""
    driver = Driver(blocks=100)
    driver.submit(1, [1] * length)
    driver.submit(2, [1, 2])
    assert driver.ended[1].finish is Finish.REJECTED
    assert str(length) in driver.ended[1].detail and "64" in driver.ended[1].detail
    assert driver.counts_of(driver.plan()) == [2]


def test_a_long_prompt_is_prefilled_in_chunks():
    """Budget 6, ten tokens: 0..5 without a token, then 6..9, which samples. (QA-9)"""
    driver = Driver(budget=6, blocks=100)
    driver.submit(1, list(range(10, 20)))
    step = driver.plan()
    slot = driver.slots[step.plan.slot]
    assert slot.tokens[:6].tolist() == [10, 11, 12, 13, 14, 15]
    assert (slot.start[0], step.samples.tolist()) == (0, [False])
    driver.settle()
    assert driver.outputs == {}
    assert driver.core.table.committed[step.rows[0]] == 6
    step = driver.plan()
    slot = driver.slots[step.plan.slot]
    assert slot.tokens[:4].tolist() == [16, 17, 18, 19]
    assert (slot.start[0], step.samples.tolist()) == (6, [True])


def test_a_decode_row_carries_one_token_at_the_next_position():
    """After the prefill of 4 tokens the decode is at position 4. (QA-10)"""
    driver = Driver()
    driver.submit(1, [1, 2, 3, 4])
    driver.plan()
    driver.settle(5)
    step = driver.plan()
    assert driver.counts_of(step) == [1]
    assert driver.slots[step.plan.slot].start[0] == 4


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
    ],
)
def test_chunk_size(new, left, block, size):
    """A cut is at a multiple of 64 or of the block. (QA-15)"""
    assert chunk_size(new, left, block, first=True, budget=max(left, 64)) == size


def test_no_slivers():
    """What is left of a step after other prefills is not filled with a piece below the unit. (QA-14)"""
    driver = Driver(budget=200, blocks=400, max_model_len=1024)
    for rid in range(3):
        driver.submit(rid, [1] * 128)
    assert driver.counts_of(driver.plan()) == [128, 64]


def test_decodes_and_chunks_share_a_step():
    """Budget 64, one decode, a fresh prompt of 200: 1 and 63 in one step. (QA-20)"""
    driver = Driver(budget=64, blocks=100, max_model_len=256)
    driver.submit(1, [1, 2, 3, 4])
    driver.plan()
    driver.settle()
    driver.submit(2, [7] * 200)
    assert driver.counts_of(driver.plan()) == [1, 63]


def test_a_long_prompt_never_stops_a_running_stream():
    """While a prompt of 2,048 tokens is prefilled each step has a decode row. (RG-16)"""
    driver = Driver(budget=64, blocks=1000, max_model_len=4096)
    driver.submit(1, [1, 2, 3], max_tokens=200)
    driver.plan()
    driver.settle()
    driver.submit(2, [9] * 2048, max_tokens=1)
    while 2 not in driver.ended:
        before = len(driver.outputs[1])
        driver.turn()
        assert len(driver.outputs[1]) == before + 1


def test_the_budget_bounds_the_rows_too():
    """Budget 2, four requests: two run, since a step must hold every decode; all end."""
    driver = Driver(budget=2, blocks=40)
    for rid in range(4):
        driver.submit(rid, [1], max_tokens=5)
    while driver.turn():
        assert driver.core.counts()[0] <= 2
    assert {len(tokens) for tokens in driver.outputs.values()} == {5}


def test_requests_run_in_pairs_when_two_rows_are_there():
    """Six requests of 8 tokens with two rows end after 8, 16 and 24 steps. (RG-3)"""
    driver = Driver(rows=2, budget=1000, blocks=100)
    for rid in range(6):
        driver.submit(rid, [1, 2, 3, 4], max_tokens=8)
    ended = {}
    for step in range(1, 25):
        driver.turn()
        assert driver.core.counts()[0] <= 2
        for rid in driver.ended:
            ended.setdefault(rid, step)
    assert ended == {0: 8, 1: 8, 2: 16, 3: 16, 4: 24, 5: 24}


# Stop rules


def prefilled(**options) -> Driver:
    driver = Driver()
    driver.submit(1, [1, 2, 3, 4], **options)
    driver.plan()
    return driver


def test_a_token_is_appended():
    """A sampled token that stops nothing is emitted. (ST-1)"""
    driver = prefilled()
    driver.settle(10)
    assert driver.outputs == {1: [10]}
    assert driver.ended == {}


def test_eos_ends_a_request():
    """EOS is emitted and counted, and all is free again. (ST-2)"""
    driver = prefilled(ignore_eos=False)
    driver.settle(EOS_TOKEN_ID)
    assert driver.outputs == {1: [EOS_TOKEN_ID]}
    assert (driver.ended[1].finish, driver.ended[1].stop_token) == (Finish.STOP, -1)
    assert driver.core.counts() == (0, 0)
    assert driver.core.pool.free == 10


def test_eos_is_a_token_like_any_other_when_it_is_ignored():
    """(ST-3)"""
    driver = prefilled(max_tokens=100, ignore_eos=True)
    driver.settle(EOS_TOKEN_ID)
    assert driver.ended == {}


def test_max_tokens_ends_a_request():
    """(ST-4)"""
    driver = prefilled(max_tokens=2)
    driver.settle(10)
    driver.plan()
    driver.settle(11)
    assert driver.outputs == {1: [10, 11]}
    assert driver.ended[1].finish is Finish.LENGTH


def test_a_stop_id_ends_a_request_and_is_named():
    """(ST-5)"""
    driver = prefilled(stop_token_ids=(98, 99))
    driver.settle(99)
    assert driver.outputs == {1: [99]}
    assert (driver.ended[1].finish, driver.ended[1].stop_token) == (Finish.STOP, 99)


def test_nothing_stops_below_min_tokens():
    """(ST-7)"""
    driver = prefilled(min_tokens=3, ignore_eos=False)
    driver.settle(10)
    driver.plan()
    driver.settle(EOS_TOKEN_ID)
    assert driver.ended == {}


def test_min_tokens_masks_eos_and_stop_ids_on_the_executor():
    """The executor is told which ids it may not sample, and up to which position."""
    driver = Driver()
    driver.submit(1, [1, 2, 3, 4], min_tokens=3, ignore_eos=False, stop_token_ids=(99,))
    driver.submit(2, [1, 2], min_tokens=3, ignore_eos=True)
    driver.submit(3, [1, 2], ignore_eos=False)
    rows = driver.plan().plan.new_rows
    assert [(row.masked_until, row.masked_token_ids) for row in rows] == [
        (7, (99, EOS_TOKEN_ID)),
        (5, ()),
        (0, ()),
    ]


def test_the_model_length_ends_a_request():
    """Limit 16, prompt 10: the request ends with 16 tokens in all. (RG-4)"""
    driver = Driver(max_model_len=16)
    driver.submit(1, [1] * 10)
    driver.run()
    assert len(driver.outputs[1]) == 6
    assert driver.ended[1].finish is Finish.LENGTH


def test_a_pool_that_is_full_ends_the_only_request():
    """Two blocks, prompt of 4: length after five outputs, which are kept. (RG-5)"""
    for depth in (1, 2):
        driver = Driver(blocks=2, depth=depth)
        driver.submit(1, [1, 2, 3, 4], max_tokens=50)
        driver.run()
        assert driver.outputs[1] == continuation([1, 2, 3, 4], 5)
        assert (driver.ended[1].finish, driver.ended[1].detail) == (Finish.LENGTH, "kv_capacity")


def test_who_waits_for_a_full_pool_is_planned_as_soon_as_it_is_free():
    """The plan that ends a request for want of blocks is the plan that admits the next one. (TR-4)"""
    driver = Driver(blocks=1)
    driver.submit(1, [1, 2, 3, 4])
    driver.turn()
    driver.submit(2, [5, 6])
    step = driver.plan()
    assert driver.ended[1].detail == "kv_capacity"
    assert driver.core.table.rid[step.rows].tolist() == [2]


# Preemption


def test_the_younger_loses_its_block_to_the_older():
    """Two blocks, both full: the younger is preempted and the older decodes in its block. (QA-11)"""
    driver = Driver(blocks=2)
    driver.submit(1, [1, 2, 3, 4])
    driver.submit(2, [5, 6, 7, 8])
    driver.plan()
    driver.settle()
    step = driver.plan()
    assert driver.core.table.rid[step.rows].tolist() == [1]
    assert driver.core.counts() == (1, 1)
    assert driver.core.statistics.preemptions == 1


@pytest.mark.parametrize("depth", [1, 2])
def test_preemption_changes_no_token(depth):
    """Requests that are preempted again and again give the tokens that they give alone. (RG-13)"""
    driver = Driver(blocks=6, depth=depth)
    prompts = {rid: [rid + 3] * (rid + 2) for rid in range(4)}
    for rid, prompt in prompts.items():
        driver.submit(rid, prompt, max_tokens=12)
    driver.run()
    assert driver.core.statistics.preemptions > 0
    assert driver.outputs == {rid: continuation(prompt, 12) for rid, prompt in prompts.items()}


def test_a_preempted_request_computes_its_outputs_again_before_it_decodes():
    """Its known outputs are host tokens of a prefill, and only the last chunk samples. (RG-1)"""
    driver = Driver(budget=8, blocks=100)
    driver.submit(1, list(range(10, 18)))
    while len(driver.outputs.get(1, [])) < 12:
        driver.turn()
    row = driver.core._requests[1].row
    driver.core._planner._preempt(row)
    chunks = []
    while len(driver.outputs[1]) < 13:
        step = driver.plan()
        chunks.append((driver.counts_of(step), step.samples.tolist()))
        driver.settle()
    assert chunks == [([8], [False]), ([8], [False]), ([4], [True])]
    assert driver.outputs[1] == continuation(list(range(10, 18)), 13)


def test_a_late_result_of_a_preempted_row_is_dropped():
    """Depth 2, a third token in flight: after the preemption only the two settled ones are known. (RG-12)"""
    driver = Driver(depth=2, blocks=20)
    driver.submit(1, [1, 2, 3, 4])
    for _ in range(2):
        driver.plan()
    driver.settle()
    driver.plan()
    driver.settle()
    assert len(driver.outputs[1]) == 2
    driver.core._planner._preempt(driver.core._requests[1].row)
    driver.settle()
    assert len(driver.outputs[1]) == 2
    assert driver.core.statistics.late_results == 1
    driver.run()
    assert driver.outputs[1] == continuation([1, 2, 3, 4], 60)


def thrash(blocks: int, requests: int, prompt: int, max_tokens: int) -> tuple[int, int]:
    """(prefill tokens, steps) of requests that all run to their full length."""
    driver = Driver(blocks=blocks, rows=64, budget=1000, max_model_len=256, headroom=64)
    for rid in range(requests):
        driver.submit(rid, [rid + 3] * prompt, max_tokens=max_tokens)
    driver.run()
    assert all(len(tokens) == max_tokens for tokens in driver.outputs.values())
    return driver.core.statistics.prompt_tokens, driver.core.statistics.steps_planned


def test_thrash_is_bounded():
    """Headroom and the cap after a preemption bound what is computed twice. (RG-14, RG-15)"""
    tokens, steps = thrash(256, 64, 64, 128)
    assert tokens <= 5325 and steps <= 1700
    tokens, steps = thrash(64, 20, 32, 64)
    assert tokens <= 832 and steps <= 660


# Abort and errors


@pytest.mark.parametrize("turns", range(6))
@pytest.mark.parametrize("depth", [1, 2])
def test_abort_at_every_stage(depth, turns):
    """One last word `abort`, the blocks back in the same call, and the neighbour undisturbed. (RQ-8)"""
    driver = Driver(depth=depth, budget=4, blocks=20)
    driver.submit(1, [1] * 7)
    driver.submit(2, [2] * 3, max_tokens=9)
    for _ in range(turns):
        driver.turn()
    driver.abort(1)
    assert driver.ended[1].finish is Finish.ABORT
    driver.abort(1)
    driver.abort(77)
    driver.run()
    assert driver.outputs[2] == continuation([2] * 3, 9)
    assert driver.core.pool.free == 20


def test_abort_of_a_preempted_request():
    """It waits with its outputs; the abort ends it there."""
    driver = Driver(blocks=2)
    driver.submit(1, [1, 2, 3, 4])
    driver.submit(2, [5, 6, 7, 8])
    for _ in range(2):
        driver.turn()
    assert driver.core.counts() == (1, 1)
    driver.abort(2)
    assert driver.ended[2].finish is Finish.ABORT
    assert driver.core.counts() == (1, 0)


def test_a_stop_string_ends_a_request_without_a_word():
    """Output said the last word when it found the string; the scheduler only frees what is held."""
    driver = prefilled()
    driver.settle(10)
    driver.abort(1, Finish.STOP)
    assert driver.ended == {}
    assert driver.core.counts() == (0, 0)
    assert not driver.core.has_work


def test_a_row_that_fails_ends_alone():
    """Its request ends with the cause; its batch mate gets its token."""
    driver = Driver()
    driver.submit(1, [1, 2])
    driver.submit(2, [3, 4])
    driver.plan()
    driver.pending.popleft()
    driver.core.settle(np.array([10, 11], np.int32), [RowError(0, "the logits are not numbers")])
    driver.take()
    assert (driver.ended[1].finish, driver.ended[1].detail) == (Finish.ERROR, "the logits are not numbers")
    assert list(driver.outputs) == [2]


def test_a_row_that_ended_gets_no_token_of_the_step_behind_it():
    """Depth 2: a row that samples EOS is in the next step already; that result falls on the floor."""
    driver = Driver(depth=2)
    driver.submit(1, [1, 2, 3, 4], ignore_eos=False)
    driver.plan()
    driver.plan()
    driver.settle(EOS_TOKEN_ID)
    driver.settle(50)
    assert driver.outputs == {1: [EOS_TOKEN_ID]}
    assert driver.core.statistics.late_results == 1


def test_no_row_beyond_max_tokens_at_depth_two():
    """A row whose open steps reach max_tokens gets no further one."""
    driver = Driver(depth=2)
    driver.submit(1, [1, 2, 3, 4], max_tokens=2)
    driver.plan()
    driver.plan()
    driver.settle()
    assert driver.plan() is None
    driver.settle()
    assert len(driver.outputs[1]) == 2
