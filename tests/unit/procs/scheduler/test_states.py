"""Requests of models with recurrent state, through the scheduler's core: slots, checkpoints, and who resumes where.

The fake executor reads a position's history both from the cache and from the state slot: a slot that holds anything
else than the state behind that position changes every later token. A name in brackets is the row of the scheduling
rules that the test shows; the set-up is 100 blocks of 4, 8 slots, budget and model length 256, depth 1.
"""

import numpy as np
import pytest

from fourstroke.common.types import Finish
from fourstroke.procs.executor.fake import continuation
from fourstroke.procs.scheduler.request import Phase
from fourstroke.procs.scheduler.state.state_slots import NO_SLOT

from .driver import Driver
from .remote import blocks_of, prompt, rids, row_of

TEXT = list(range(20, 60))


def stateful(**setup) -> Driver:
    usual = {"blocks": 100, "state_slots": 8, "rows": 16, "budget": 256, "max_model_len": 256}
    return Driver(**{**usual, **setup})


def caching(interval: int = 8, **setup) -> Driver:
    return stateful(cache=True, state_checkpoint_interval=interval, **setup)


def slot_of(driver: Driver, rid: int) -> int:
    return int(driver.core.table.state_slot[row_of(driver, rid)])


def free(driver: Driver) -> tuple[int, int]:
    """Free blocks and slots."""
    return driver.core.pool.free, driver.core.state_slots.free


def chunks(driver: Driver) -> list[int]:
    """The sizes of the prefill chunks until nothing is left to do."""
    sizes = []
    while driver.core.alive:
        step = driver.plan()
        sizes += step.counts[~step.decodes].tolist()
        driver.settle()
    return sizes


def ran(driver: Driver, rid: int, tokens: list[int], max_tokens: int = 3) -> tuple[int, list[int]]:
    """A request alone, which says what it must: so much it found, and the chunks that it computed."""
    driver.submit(rid, tokens, max_tokens=max_tokens)
    sizes = chunks(driver)
    assert driver.outputs[rid] == continuation(tokens, max_tokens)
    return driver.opened[rid], sizes


def checkpoints(driver: Driver, rid: int) -> list[int]:
    """The positions of a live request's table behind which there is a checkpoint."""
    blocks = blocks_of(driver, rid)
    return [4 * (place + 1) for place, block in enumerate(blocks) if driver.core.state_slots.at(block) is not None]


# Slots


@pytest.mark.parametrize(("slots", "used"), [(0, 0), (8, 1)])
def test_a_request_takes_a_slot_if_the_model_has_state(slots, used):
    """And a block for 4 tokens; both come back, and it has none any more. (SL-1)"""
    driver = stateful(state_slots=slots)
    driver.submit(1, prompt(1, 4))
    step = driver.plan()
    assert free(driver) == (99, slots - used)
    assert step.plan.new_rows[0].state_slot == slot_of(driver, 1) == used - 1
    row = row_of(driver, 1)
    driver.abort(1)
    assert free(driver) == (100, slots)
    assert driver.core.table.state_slot[row] == NO_SLOT


def test_a_stateless_request_takes_no_slot():
    """Running, and when it has ended. (SL-1)"""
    driver = stateful()
    driver.submit(1, prompt(1, 4), needs_state=False)
    driver.plan()
    assert (slot_of(driver, 1), driver.core.state_slots.free) == (NO_SLOT, 8)
    driver.abort(1)
    assert driver.core.state_slots.free == 8


def test_blocks_and_slots_are_counted_apart():
    """20 blocks: 16 tokens without state leave 16 blocks, a small request with state 15 and 7 slots. (SL-3)"""
    driver = stateful(blocks=20, depth=2)
    driver.submit(1, prompt(1, 16), max_tokens=1, needs_state=False)
    driver.plan()
    assert free(driver) == (16, 8)
    driver.submit(2, prompt(2, 4))
    driver.plan()
    assert free(driver) == (15, 7)


def test_who_does_not_fit_takes_no_slot():
    """24 tokens and 5 blocks. (SL-2)"""
    driver = stateful(blocks=5)
    driver.submit(1, prompt(1, 24))
    assert driver.plan() is None
    assert driver.ended[1].finish is Finish.REJECTED
    assert free(driver) == (5, 8)


def test_without_a_free_slot_nobody_is_admitted():
    """There is one in all, and it is used. (SL-2)"""
    driver = stateful(state_slots=1)
    driver.submit(1, prompt(1, 4))
    driver.submit(2, prompt(2, 4))
    assert rids(driver, driver.plan()) == [1]
    assert driver.request(2).phase is Phase.FRESH
    driver.run()
    assert driver.outputs[2] == continuation(prompt(2, 4), 64)


def test_each_request_has_a_slot_of_its_own():
    """Eight requests, eight slots. (SL-2)"""
    driver = stateful()
    for rid in range(8):
        driver.submit(rid, prompt(rid, 4))
    driver.plan()
    assert sorted(slot_of(driver, rid) for rid in range(8)) == list(range(8))


def test_the_slot_that_was_freed_is_given_next():
    """Two slots. (SL-2)"""
    driver = stateful(state_slots=2)
    driver.submit(1, prompt(1, 4))
    driver.submit(2, prompt(2, 4))
    driver.turn()
    freed = slot_of(driver, 1)
    driver.abort(1)
    driver.submit(3, prompt(3, 4))
    driver.plan()
    assert slot_of(driver, 3) == freed


def test_the_executor_is_told_the_slots():
    """Of a request with slot 3 and a stateless one. (SL-4)"""
    driver = stateful()
    for rid in range(3):
        driver.submit(rid, prompt(rid, 4))
    driver.turn()
    driver.submit(3, prompt(3, 4))
    driver.submit(4, prompt(4, 4), needs_state=False)
    step = driver.plan()
    assert [new.state_slot for new in step.plan.new_rows] == [3, -1]


@pytest.mark.parametrize(("needs", "rows"), [([True] * 3, 2), ([True, False, True, False], 4)])
def test_slots_bound_only_requests_with_state(needs, rows):
    """Two slots: of three with state two are planned, and of two with and two without all. (SL-5)"""
    driver = stateful(state_slots=2)
    for rid, needs_state in enumerate(needs):
        driver.submit(rid, prompt(rid, 4), needs_state=needs_state)
    assert len(driver.plan().rows) == rows
    assert sum(driver.core.counts()) == len(needs)


@pytest.mark.parametrize("depth", [1, 2])
def test_a_preempted_request_gives_its_slot_back(depth):
    """And takes one again when it is computed again. (SL-5)"""
    driver = stateful(depth=depth)
    driver.submit(1, prompt(1, 6), max_tokens=9)
    for _ in range(3):
        driver.turn()
    driver.core.preempt(1)
    assert (driver.request(1).phase, driver.core.state_slots.free) == (Phase.PREEMPTED, 8)
    driver.run()
    assert driver.outputs[1] == continuation(prompt(1, 6), 9)


# Checkpoints on the grid


@pytest.mark.parametrize(("tokens", "sizes"), [(7, [7]), (8, [8]), (9, [8, 1]), (20, [8, 8, 4])])
def test_chunks_are_cut_on_the_grid(tokens, sizes):
    """Every 8 tokens of the prompt; one that is shorter is not cut."""
    assert ran(caching(), 1, TEXT[:tokens]) == (0, sizes)


def test_checkpoints_are_taken_on_the_grid():
    """One every 8 tokens behind which the request goes on."""
    driver = caching()
    driver.submit(1, TEXT[:20])
    for places in ([], [8], [8, 16]):
        driver.turn()
        assert checkpoints(driver, 1) == places
    driver.run()


@pytest.mark.parametrize(("max_tokens", "slots"), [(1, 1), (2, 2)])
def test_the_end_of_a_request_leaves_no_checkpoint(max_tokens, slots):
    """16 tokens: behind the last only if a step goes on from there."""
    driver = caching()
    ran(driver, 1, TEXT[:16], max_tokens)
    assert driver.core.state_slots.free == 8
    assert len(driver.core.state_slots._checkpoints) == slots


@pytest.mark.parametrize("depth", [1, 2])
def test_who_finds_a_checkpoint_resumes_there(depth):
    """20 tokens: 16 are found with their state, and the text is what it must be."""
    driver = caching(depth=depth)
    for rid, found in enumerate((0, 16, 16)):
        driver.submit(rid, TEXT[:20], max_tokens=5)
        driver.run()
        assert (driver.opened[rid], driver.outputs[rid]) == (found, continuation(TEXT[:20], 5))


def test_a_hit_counts_as_far_as_its_last_checkpoint():
    """Another prompt shares 14 tokens: 3 blocks are found, and behind the second there is a state."""
    driver = caching()
    ran(driver, 1, TEXT[:20])
    assert ran(driver, 2, TEXT[:14] + [9] * 4)[0] == 8


def test_a_wrong_state_would_be_noticed():
    """The test of the tests here: when a checkpoint is spoilt, who resumes from it says something else."""
    driver = caching()
    ran(driver, 1, TEXT[:20])
    driver.runner._memory._states += np.uint64(1)
    driver.submit(2, TEXT[:20], max_tokens=5)
    driver.run()
    assert driver.opened[2] == 16
    assert driver.outputs[2] != continuation(TEXT[:20], 5)


def test_many_resume_from_one_checkpoint():
    """At once: each copies it and none writes it."""
    driver = caching()
    ran(driver, 1, TEXT[:20])
    tails = {rid: TEXT[:17] + [rid] * 5 for rid in range(2, 7)}
    for rid, tokens in tails.items():
        driver.submit(rid, tokens, max_tokens=5)
    step = driver.plan()
    assert step.starts.tolist() == [16] * 5
    driver.run()
    assert {rid: driver.outputs[rid] for rid in tails} == {
        rid: continuation(tokens, 5) for rid, tokens in tails.items()
    }


def test_checkpoints_take_no_slot_from_a_request():
    """Two slots, both with checkpoints: two requests that share nothing are admitted all the same."""
    driver = caching(state_slots=2)
    ran(driver, 1, TEXT[:20])
    assert (len(driver.core.state_slots._checkpoints), driver.core.state_slots.free) == (1, 2)
    for rid in (2, 3):
        driver.submit(rid, prompt(rid, 6), max_tokens=4)
    assert rids(driver, driver.plan()) == [2, 3]
    driver.run()
    assert [driver.outputs[rid] for rid in (2, 3)] == [continuation(prompt(rid, 6), 4) for rid in (2, 3)]


@pytest.mark.parametrize("slots", [1, 2])
def test_who_is_given_the_slot_of_its_checkpoint_resumes_all_the_same(slots):
    """With one slot there is none to copy to, with two the request takes the vacant one."""
    driver = caching(state_slots=slots)
    driver.submit(1, TEXT[:20], max_tokens=1)
    driver.submit(2, TEXT[:20], max_tokens=5)
    driver.run()
    driver.submit(3, TEXT[:20], max_tokens=5)
    driver.run()
    assert [driver.outputs[rid] for rid in (2, 3)] == [continuation(TEXT[:20], 5)] * 2
    driver.core.state_slots.check([])


def test_checkpoints_die_with_their_blocks():
    """Prompts that take one another's blocks find no state of what was there before."""
    driver = caching(blocks=8)
    for turn in range(6):
        tokens = prompt(turn % 3, 29 - turn)
        assert ran(driver, turn, tokens)[0] == 0
        kept = driver.core.state_slots._checkpoints
        assert kept and all(driver.core.pool.digest(block) for block in kept)
        assert ran(driver, 10 + turn, tokens)[0] == 8 * ((28 - turn) // 8)


def test_a_preempted_request_resumes_from_its_own_checkpoint():
    """With 18 tokens and two outputs: from 16."""
    driver = caching()
    driver.submit(1, TEXT[:18], max_tokens=6)
    while len(driver.outputs.get(1, ())) < 2:
        driver.turn()
    driver.core.preempt(1)
    step = driver.plan()
    assert (step.starts.tolist(), driver.counts_of(step)) == ([16], [4])
    driver.run()
    assert driver.outputs[1] == continuation(TEXT[:18], 6)


def test_a_checkpoint_of_a_block_that_was_not_published_is_void():
    """Aborted with two chunks in flight: who gets its blocks finds no state that is not its own."""
    driver = caching(depth=2)
    driver.submit(1, prompt(1, 20))
    driver.plan()
    driver.plan()
    assert checkpoints(driver, 1) == [8]
    driver.abort(1)
    driver.run()
    driver.depth = 1
    assert [ran(driver, rid, TEXT[:15])[0] for rid in (2, 3)] == [0, 8]


@pytest.mark.parametrize("forget", [lambda driver: driver.reset_cache(99), Driver.restart], ids=["reset", "restart"])
def test_checkpoints_are_forgotten_with_the_cache(forget):
    """All slots are vacant, and a prompt that was there is computed whole."""
    driver = caching()
    ran(driver, 1, TEXT[:20])
    forget(driver)
    assert driver.core.state_slots._checkpoints == {}
    assert ran(driver, 2, TEXT[:20])[0] == 0


# Checkpoints that somebody asked for


def test_who_misses_a_checkpoint_leaves_one():
    """No grid: the second finds 16 tokens without state, computes all and pauses there; the third resumes there."""
    driver = caching(interval=0)
    assert ran(driver, 1, TEXT[:20]) == (0, [20])
    assert ran(driver, 2, TEXT[:18]) == (0, [16, 2])
    assert ran(driver, 3, TEXT[:20]) == (16, [4])


def test_a_checkpoint_is_wished_for_behind_what_is_shared():
    """A system prompt of 12 tokens before questions: the second question leaves the state behind it."""
    driver = caching(interval=0)
    questions = [TEXT[:12] + prompt(rid, 9) for rid in range(4)]
    assert [ran(driver, rid, tokens) for rid, tokens in enumerate(questions)] == [
        (0, [21]),
        (0, [12, 9]),
        (12, [9]),
        (12, [9]),
    ]


def test_who_comes_together_waits_for_the_checkpoint():
    """The first left none; of three at once one computes the prefix, and the others resume behind it."""
    driver = caching(interval=0)
    ran(driver, 1, TEXT[:20])
    computed = driver.core.statistics.prompt_tokens
    for rid in (2, 3, 4):
        driver.submit(rid, TEXT[:17] + [rid], max_tokens=3)
    assert rids(driver, driver.plan()) == [2]
    driver.run()
    assert [driver.opened[rid] for rid in (2, 3, 4)] == [0, 16, 16]
    assert driver.core.statistics.prompt_tokens - computed == 18 + 2 + 2
    for rid in (2, 3, 4):
        assert driver.outputs[rid] == continuation(TEXT[:17] + [rid], 3)


def test_nobody_waits_for_a_prefill_that_has_passed():
    """It shares a block with a long prompt, and no state will be left behind that: it is computed beside it."""
    driver = caching(interval=0, budget=16, long_prefill_threshold=8)
    driver.submit(1, prompt(1, 100), max_tokens=2)
    driver.turn()
    driver.submit(2, prompt(1, 4) + [7] * 6, max_tokens=2)
    step = driver.plan()
    assert (rids(driver, step), driver.counts_of(step)) == ([1, 2], [8, 4])
    driver.run()
    assert driver.outputs[2] == continuation(prompt(1, 4) + [7] * 6, 2)


@pytest.mark.parametrize("cache", [False, True])
@pytest.mark.parametrize("depth", [1, 2])
def test_choices_of_one_prompt_share_the_state_behind_it(cache, depth):
    """The first pauses where the others will begin: together they compute the prompt, and then its last tokens."""
    driver = stateful(cache=cache, depth=depth, rows=4)
    driver.submit(range(4), TEXT[:18], max_tokens=5)
    driver.run()
    assert driver.outputs == dict.fromkeys(range(4), continuation(TEXT[:18], 5))
    assert driver.core.statistics.prompt_tokens == 18 + 3 * 2
    assert free(driver) == (100, 8)
