"""Requests as they come in, and the choices of one prompt: what they share and what is each one's own.

A name in brackets is the row of the scheduling rules that the test shows; the set-up is the driver's:
block 4, 10 blocks, 4 rows, budget 64, model length 64, depth 1, unless a test says otherwise.
"""

from collections.abc import Sequence

import numpy as np
import pytest

from fourstroke.common.errors import InvalidRequest
from fourstroke.common.types import Finish, SamplingParams
from fourstroke.ipc.messages import NO_ENDINGS, CacheKeys, Limits, Sampling, Submit
from fourstroke.ipc.ring import TokenRing, ring_bytes
from fourstroke.procs.executor.fake import continuation
from fourstroke.procs.scheduler.arrivals import requests_of

from .driver import GREEDY, Driver, Switch
from .remote import blocks_of, prompt, rids, row_of


def submit_of(rids: Sequence[int], prompt_at: int = 0, prompt_tokens: int = 3) -> Submit:
    """A message as ingest sends it."""
    seeds = tuple(100 + choice for choice in range(len(rids)))
    limits = Limits(8, 0, True, ())
    return Submit(tuple(rids), seeds, prompt_at, prompt_tokens, b"", CacheKeys(), GREEDY, limits, 0, 0.0, b"")


def noisy(driver: Driver) -> None:
    """One round in which every row that samples gives a token of its own seed and place, as a real sampler does."""
    step = driver.plan()
    table = driver.core.table
    owners = [table.requests[row] for row in step.rows.tolist()]
    ends = (step.starts + step.counts).tolist()
    driver.settle(*(1000 * (1 + owner.seed) + end if owner else 0 for owner, end in zip(owners, ends, strict=True)))


# One request


def test_a_request_keeps_its_prompt():
    """Whatever is written later where it came from. (RQ-1)"""
    ring = TokenRing(bytearray(ring_bytes(8)))
    tokens = ring.take(ring.write(np.array([1, 2, 3], np.int32)), 3)
    (request,) = requests_of(submit_of([7]), tokens, 0.0, block_size=4, prefix_cache=False, stateful=False)
    ring.write(np.array([9] * 5, np.int32))
    ring.write(np.array([9] * 3, np.int32))
    assert request.tokens.tolist() == [1, 2, 3]


def test_ids_are_unique_and_keep_their_order():
    """(RQ-1)"""
    prompt_tokens = np.array([1, 2, 3], np.int32)
    options = {"block_size": 4, "prefix_cache": False, "stateful": False}
    requests = requests_of(submit_of([5, 0, 9]), prompt_tokens, 0.0, **options)
    assert [(request.rid, request.seed) for request in requests] == [(5, 100), (0, 101), (9, 102)]
    with pytest.raises(ValueError, match="ids"):
        submit_of([5, 9, 5])


@pytest.mark.parametrize(("tokens", "block_size", "blocks"), [(4, 4, 1), (5, 4, 2), (3, 1, 3)])
def test_blocks_of_a_prompt(tokens, block_size, blocks):
    """The last one may be partly filled. (RQ-2)"""
    driver = Driver(block_size=block_size)
    driver.submit(1, prompt(1, tokens))
    step = driver.plan()
    assert len(blocks_of(driver, 1)) == blocks
    slot = driver.slots[step.plan.slot]
    told = {int(slot.block_index[at]): int(slot.block_id[at]) for at in range(step.plan.blocks)}
    assert [told[index] for index in range(blocks)] == blocks_of(driver, 1)
    assert tokens - (blocks - 1) * block_size == (1 if blocks > 1 else 4)


def test_outputs_are_what_comes_behind_the_prompt():
    """Prompt [10, 20, 30], outputs 40 and 50, running and preempted. (RQ-3)"""
    driver = Driver()
    driver.submit(1, [10, 20, 30])
    for token in (40, 50):
        driver.plan()
        driver.settle(token)
    table, row = driver.core.table, row_of(driver, 1)
    assert table.tokens[row, : table.length[row]].tolist() == [10, 20, 30, 40, 50]
    driver.core.preempt(1)
    request = driver.request(1)
    known, of_prompt = request.tokens.tolist(), request.prompt_tokens
    assert (known[:of_prompt], known[of_prompt:]) == ([10, 20, 30], [40, 50])
    assert driver.outputs == {1: [40, 50]}


@pytest.mark.parametrize(("tokens", "outputs"), [(120, 8), (121, 7), (129, 0)])
def test_the_model_length_clips_max_tokens(tokens, outputs):
    """Limit 128, max_tokens 8; a prompt that is too long is rejected. (RQ-5)"""
    driver = Driver(max_model_len=128, budget=256, blocks=100)
    driver.submit(1, prompt(1, tokens), max_tokens=8)
    driver.run()
    assert driver.outputs.get(1, []) == continuation(prompt(1, tokens), outputs)
    assert driver.ended[1].finish is (Finish.LENGTH if outputs else Finish.REJECTED)


def test_a_message_may_have_no_new_token():
    """The first chunk of a prompt whose log-probabilities are wanted, and an abort: no reason before the last word.

    (RQ-6)
    """
    driver = Driver(budget=4)
    driver.submit(1, prompt(1, 6), sampling=Sampling(0.0, 0, 1.0, 0.0, prompt_logprobs=0))
    driver.plan()
    driver.core.settle(driver.pending.popleft().errors, driver.now)
    (emission,) = driver.core.take_emissions()
    assert (len(emission.new.rids), len(emission.new.tokens)) == (0, 0)
    assert [opened.rid for opened in emission.opened] == [1]
    assert len(emission.prompt_logprobs.values) > 0
    assert emission.ended.message == NO_ENDINGS
    driver.opened[1] = 0
    driver.abort(1)
    assert driver.ended[1].finish is Finish.ABORT
    assert driver.outputs == {}


# Several choices


@pytest.mark.parametrize("n", [0, -3])
def test_there_is_no_request_without_a_choice(n):
    """(RQ-4)"""
    with pytest.raises(InvalidRequest, match="n must"):
        SamplingParams(n=n)
    with pytest.raises(ValueError, match="0 ids"):
        submit_of([])


@pytest.mark.parametrize("n", [1, 4])
def test_choices_are_requests_of_their_own(n):
    """n requests, with seeds of their own that the executor is told, and lists of their own. (RQ-4)"""
    options = {"block_size": 4, "prefix_cache": True, "stateful": False}
    tokens = np.arange(3, dtype=np.int32)
    requests = requests_of(submit_of(range(10, 10 + n)), tokens, 0.0, **options)
    assert [(request.rid, request.seed) for request in requests] == [(10 + choice, 100 + choice) for choice in range(n)]
    assert len({id(request.digests) for request in requests}) == n
    assert (requests[0].siblings is None) == (n == 1)
    driver = Driver()
    driver.submit(range(n), prompt(1, 3))
    step = driver.plan()
    assert [(new.row, new.seed) for new in step.plan.new_rows] == [(row, seed) for seed, row in enumerate(step.rows)]
    assert len(step.rows) == n


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("tokens", [3, 4, 9, 12])
def test_without_temperature_choices_are_equal(depth, tokens):
    """Four equal texts. (RQ-4)"""
    driver = Driver(depth=depth, blocks=40)
    driver.submit(range(4), prompt(1, tokens), max_tokens=10)
    driver.run()
    assert driver.outputs == dict.fromkeys(range(4), continuation(prompt(1, tokens), 10))


@pytest.mark.parametrize("preempted", [False, True])
def test_choices_differ_by_their_seeds(preempted):
    """Each one's tokens are of its own seed and places, also when it is computed again. (RQ-4)"""
    driver = Driver(blocks=40)
    driver.submit(range(4), prompt(1, 9), max_tokens=5)
    for turn in range(20):
        if preempted and turn in (3, 4):
            driver.core.preempt(turn - 2)
        if driver.core.alive:
            noisy(driver)
    assert driver.core.statistics.preemptions == 2 * preempted
    assert driver.outputs == {choice: [1000 * (1 + choice) + 9 + place for place in range(5)] for choice in range(4)}


# Their prompt is computed once


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("cache", [False, True])
@pytest.mark.parametrize("aborted", [False, True])
def test_a_prompt_of_four_choices_is_prefilled_once(depth, cache, aborted):
    """40 tokens, then the last block of each other one. If the first is aborted half way, the next goes on. (RQ-7)"""
    driver = Driver(blocks=100, budget=24, depth=depth, cache=cache)
    driver.submit(range(4), prompt(1, 40), max_tokens=6)
    step = driver.plan()
    assert (rids(driver, step), driver.counts_of(step)) == ([0], [24])
    if aborted:
        driver.settle()
        driver.abort(0)
        step = driver.plan()
        assert (rids(driver, step), step.starts.tolist(), driver.counts_of(step)) == ([1], [24], [16])
    driver.run()
    assert driver.core.statistics.prompt_tokens <= 40 + 3 * 4
    complete = range(aborted, 4)
    assert {rid: driver.outputs[rid] for rid in complete} == dict.fromkeys(complete, continuation(prompt(1, 40), 6))
    assert driver.core.pool.free == 100


def test_if_the_next_one_is_aborted_too_the_third_goes_on():
    """What the first two have computed is held for the rest."""
    driver = Driver(blocks=100, budget=12)
    driver.submit(range(3), prompt(1, 40), max_tokens=6)
    for rid in range(2):
        driver.turn()
        driver.abort(rid)
    step = driver.plan()
    assert (rids(driver, step), step.starts.tolist()) == ([2], [24])
    driver.run()
    assert driver.outputs[2] == continuation(prompt(1, 40), 6)
    assert driver.core.pool.free == 100


def test_when_all_are_aborted_nothing_is_held():
    """The last one lets go of the blocks."""
    driver = Driver(blocks=100, budget=12)
    driver.submit(range(3), prompt(1, 40))
    driver.turn()
    driver.abort(0)
    assert driver.core.pool.free == 97
    driver.abort(1)
    driver.abort(2)
    assert (driver.core.pool.free, driver.core.alive) == (100, False)


@pytest.mark.parametrize("depth", [1, 2])
def test_choices_share_the_full_blocks_of_their_prompt(depth):
    """Of 10 tokens two; the partly filled one is each one's own."""
    driver = Driver(blocks=40, depth=depth)
    driver.submit(range(3), prompt(1, 10), max_tokens=20)
    while len(driver.outputs) < 3:
        driver.turn()
    tables = [blocks_of(driver, rid) for rid in range(3)]
    assert len({tuple(table[:2]) for table in tables}) == 1
    assert len({table[2] for table in tables}) == 3
    driver.run()
    assert driver.outputs == dict.fromkeys(range(3), continuation(prompt(1, 10), 20))


@pytest.mark.parametrize("cache", [False, True])
@pytest.mark.parametrize("depth", [1, 2])
def test_more_choices_than_rows_go_in_groups(cache, depth):
    """Five with two rows: never more than two run, and the prompt is computed once all the same."""
    driver = Driver(rows=2, cache=cache, depth=depth)
    driver.submit(range(5), prompt(1, 10), max_tokens=6)
    while driver.turn():
        assert driver.core.counts().running <= 2
    assert driver.outputs == dict.fromkeys(range(5), continuation(prompt(1, 10), 6))
    assert driver.core.statistics.prompt_tokens == 10 + 4 * 2
    assert driver.core.pool.free == 10


def test_a_pool_that_is_full_of_what_is_held_serves_the_rest_all_the_same():
    """Two blocks are held for the second choice, which needs one of its own: they are let go, and it has both."""
    driver = Driver(blocks=2, rows=1)
    driver.submit((1, 2), prompt(1, 8), max_tokens=1)
    driver.turn()
    assert (driver.ended.keys(), driver.core.pool.free) == ({1}, 0)
    assert driver.counts_of(driver.plan()) == [8]
    driver.run()
    assert driver.outputs[1] == driver.outputs[2]


def test_choices_are_shared_with_nobody_where_there_is_no_cache():
    """The same prompt again is computed again, and nothing stays when all have ended."""
    driver = Driver(blocks=40)
    driver.submit((1, 2), prompt(1, 9), max_tokens=6)
    driver.submit((3, 4), prompt(1, 9), max_tokens=6)
    driver.run()
    assert driver.core.statistics.prompt_tokens == 2 * (9 + 1)
    assert driver.core.pool.index_size == 0
    driver.submit(5, prompt(1, 9), max_tokens=1)
    assert driver.counts_of(driver.plan()) == [9]


def test_a_hit_of_the_first_choice_is_held_for_the_others():
    """The first resumes from the cache; the second, admitted when that was thrown out, computes the last block only."""
    driver = Driver(cache=True, rows=1, blocks=30, budget=256)
    driver.submit(9, prompt(9, 13), max_tokens=1)
    driver.run()
    driver.submit([1, 2], [*prompt(9, 13)[:12], *prompt(8, 28)], max_tokens=2)
    driver.run()
    assert driver.core.statistics.prompt_tokens == 13 + 28 + 4
    assert driver.opened == {9: 0, 1: 12, 2: 36}


def test_a_gate_that_is_shut_throws_nothing_away():
    """The first choice is aborted after its prefill; a plan that may not prefill leaves its blocks to the others."""
    gate = Switch()
    driver = Driver(gate=gate, blocks=100)
    driver.submit([1, 2, 3, 4], prompt(1, 40), max_tokens=4)
    driver.turn()
    driver.abort(1)
    gate.open = False
    assert driver.plan() is None
    gate.open = True
    driver.run()
    assert driver.core.statistics.prompt_tokens == 40 + 3 * 4


def test_digests_that_are_made_up_are_nobody_elses():
    """Without a cache the choices of a prompt share digests: one for each full block, all different, also outside."""

    def digests_of(rids: Sequence[int]) -> list[bytes]:
        tokens = np.array([1, 2, 3] * 30, np.int32)
        submit = submit_of(rids, prompt_tokens=len(tokens))
        first, *others = requests_of(submit, tokens, 0.0, block_size=4, prefix_cache=False, stateful=False)
        assert all(other.digests == first.digests and other.digests is not first.digests for other in others)
        return first.digests

    digests = [*digests_of([0, 1]), *digests_of([2, 3, 4])]
    assert len(digests) == len(set(digests)) == 2 * (90 // 4)
    assert len({digest[-8:] for digest in digests}) == len(digests)
    assert {len(digest) for digest in digests} == {32}
