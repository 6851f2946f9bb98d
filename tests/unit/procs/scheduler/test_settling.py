"""What the results of a step mean: stop rules, what may be cached, ends, errors and late results.

A name in brackets is the row of the scheduling rules that the test shows; the set-up is the driver's:
block 4, 10 blocks, 4 rows, budget 64, model length 64, depth 1, unless a test says otherwise.
"""

import numpy as np
import pytest

from fourstroke.common.types import Finish
from fourstroke.ipc import block_hash
from fourstroke.ipc.messages import CacheKeys, RowError
from fourstroke.procs.executor.fake import EOS_TOKEN_ID
from fourstroke.procs.scheduler.cache import prefix_cache

from .driver import Driver


def prefilled(**options) -> Driver:
    """One request of 4 tokens, whose prefill has run and is not settled."""
    driver = Driver()
    driver.submit(1, [1, 2, 3, 4], **options)
    driver.plan()
    return driver


# Stop rules


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
    assert driver.core.counts() == (0, 0, 0)
    assert driver.core.pool.free == 10


def test_eos_is_a_token_like_any_other_when_it_is_ignored():
    """(ST-3)"""
    driver = prefilled(max_tokens=100, ignore_eos=True)
    driver.settle(EOS_TOKEN_ID)
    assert driver.outputs == {1: [EOS_TOKEN_ID]}
    assert driver.ended == {}


def test_max_tokens_ends_a_request():
    """(ST-4)"""
    driver = prefilled(max_tokens=2, ignore_eos=True)
    driver.settle(10)
    assert driver.ended == {}
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


def test_a_stop_sequence_ends_a_request_with_its_last_token():
    """(ST-6)"""
    driver = prefilled(stop_sequences=((10, 11),))
    driver.settle(10)
    assert driver.ended == {}
    driver.plan()
    driver.settle(11)
    assert driver.outputs == {1: [10, 11]}
    assert driver.ended[1].finish is Finish.STOP


def test_nothing_stops_below_min_tokens():
    """(ST-7)"""
    driver = prefilled(min_tokens=3, ignore_eos=False)
    driver.settle(10)
    driver.plan()
    driver.settle(EOS_TOKEN_ID)
    assert driver.outputs == {1: [10, EOS_TOKEN_ID]}
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


# The prefix cache


def watermark(driver: Driver, tokens: list[int]) -> int:
    """So many of these tokens may be found in the prefix cache."""
    size = driver.hello.block_size
    packed = block_hash.chain(np.array(tokens, np.int32), size, CacheKeys(), ())
    digests = [packed[at : at + 32] for at in range(0, len(packed), 32)]
    return size * driver.core.pool.probe(digests).blocks


@pytest.mark.parametrize("cache, cached, planned", [(True, 8, [10, 11]), (False, 0, [*range(1, 9), 10, 11])])
def test_a_prompt_resumes_where_another_left(cache, cached, planned):
    """After [1..9] has run to EOS, [1..8, 10, 11] computes its last two tokens. (PC-1)"""
    driver = Driver(cache=cache, blocks=20, budget=256)
    driver.submit(1, range(1, 10), ignore_eos=False)
    driver.plan()
    driver.settle(EOS_TOKEN_ID)
    assert driver.ended[1].finish is Finish.STOP
    driver.submit(2, [*range(1, 9), 10, 11])
    assert driver.tokens_of(driver.plan()) == [planned]
    driver.settle()
    assert driver.opened[2] == cached


@pytest.mark.parametrize("depth", [1, 2])
def test_blocks_of_generated_tokens_are_published_when_their_last_token_is_computed(depth):
    """A prompt of 8 and 12 tokens: 16 are cached, as the last was only sampled; one step more and 20 are.

    A prompt that begins with these 20 tokens computes its last block. (PC-2, PC-3)
    """
    driver = Driver(cache=True, blocks=40, depth=depth)
    prompt, generated = list(range(1, 9)), list(range(100, 113))
    driver.submit(1, prompt)
    for _ in range(depth):
        driver.plan()
    for count, token in enumerate(generated, 1):
        driver.settle(token)
        driver.plan()
        assert watermark(driver, prompt + generated) == (8 + count - 1) // 4 * 4
        if count == 12:
            assert watermark(driver, prompt + generated) == 16
    assert watermark(driver, prompt + generated) == 20
    driver.submit(2, (prompt + generated)[:20])
    while driver.pending:
        driver.settle()
    step = driver.plan()
    assert driver.tokens_of(step)[-1] == generated[8:12]


def test_a_block_is_hashed_once(monkeypatch):
    """Probed while it waits, preempted, published again: the digest of a block is kept with its request.

    Prompts are hashed by ingest. A token that was sampled last is not computed, and its block not full.
    """
    hashed = []

    def counted(parent, block, keys):
        hashed.append((parent, block))
        return block_hash.extend(parent, block, keys)

    monkeypatch.setattr(prefix_cache, "extend", counted)
    driver = Driver(cache=True, blocks=12)
    for rid in range(4):
        driver.submit(rid, [rid + 3] * (9 + rid), max_tokens=20)
    driver.run()
    assert driver.core.statistics.preemptions > 3
    full = sum((9 + rid + 20 - 1) // 4 - (9 + rid) // 4 for rid in range(4))
    assert len(hashed) == full


# Ends, errors and late results


def test_a_row_that_fails_ends_alone():
    """Its request ends with the cause; its batch mate gets its token."""
    driver = Driver()
    driver.submit(1, [1, 2])
    driver.submit(2, [3, 4])
    driver.plan()
    driver.pending.popleft()
    driver.core.settle([RowError(0, "the logits are not numbers")], driver.now)
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


def test_a_stop_string_ends_a_request_without_a_word():
    """Output said the last word when it found the string; the scheduler only frees what is held."""
    driver = prefilled()
    driver.settle(10)
    driver.abort(1, Finish.STOP)
    assert driver.ended == {}
    assert driver.core.counts() == (0, 0, 0)
    assert not driver.core.alive
