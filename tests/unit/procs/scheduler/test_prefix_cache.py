"""The prefix cache through the scheduler's core: what requests find, share and publish, and what the world is told.

A name in brackets is the row of the scheduling rules that the test shows; the set-up is the driver's:
block 4, 10 blocks, 4 rows, budget 64, model length 64, depth 1, unless a test says otherwise.
"""

import pytest

from fourstroke.common.errors import ConfigError
from fourstroke.common.types import Finish
from fourstroke.ipc.events import GPU, Removed, Stored
from fourstroke.ipc.messages import CacheKeys, Image, Sampling
from fourstroke.procs.executor.fake import continuation
from fourstroke.procs.scheduler.cache import bulletin
from fourstroke.procs.scheduler.request import Phase

from .cache.chains import told
from .driver import Driver
from .remote import blocks_of, prompt, rids, row_of

ONE_TO_8 = list(range(1, 9))


def cached(**setup) -> Driver:
    return Driver(**{"cache": True, **setup})


def ran(driver: Driver, rid: int, tokens: list[int], **fields) -> int:
    """A request of one output that comes, is computed and ends; so many tokens of its prompt were cached."""
    driver.submit(rid, tokens, max_tokens=1, **fields)
    driver.run()
    return driver.opened[rid]


def watermark(driver: Driver, rid: int) -> int:
    """So many tokens of a request are published."""
    if driver.request(rid).phase is not Phase.RUNNING:
        return 0
    return int(driver.core.table.published[row_of(driver, rid)]) * driver.hello.block_size


def events(driver: Driver) -> list[type]:
    return [type(event) for event in told(driver.core.pool)]


# Blocks of requests


@pytest.mark.parametrize("tokens", [4, 5])
def test_what_fits_is_admitted(tokens):
    """Into an empty pool. (BK-3)"""
    driver = Driver()
    driver.submit(1, [1] * tokens)
    assert driver.counts_of(driver.plan()) == [tokens]


@pytest.mark.parametrize("blocks", [1, 10])
def test_what_does_not_fit_waits_until_a_block_is_free(blocks):
    """A request of 4 tokens in each block: none more; one ends and the free block is the next one's. (BK-3)"""
    driver = Driver(blocks=blocks, rows=20, depth=2)
    for rid in range(blocks):
        driver.submit(rid, [rid + 20] * 4, max_tokens=1)
    assert rids(driver, driver.plan()) == list(range(blocks))
    driver.submit(99, [1] * 4)
    assert (driver.plan(), driver.core.pool.free) == (None, 0)
    driver.abort(0)
    assert driver.core.pool.free == 1
    assert rids(driver, driver.plan()) == [99]


@pytest.mark.parametrize("ends", [1, 2])
def test_who_shares_a_prefix_keeps_its_blocks(ends):
    """Two live sharers, released in either order: the other keeps its table of two, and its text. (BK-5)"""
    driver = cached()
    prompts = {1: ONE_TO_8, 2: [1, 2, 3, 4, 9, 10, 11, 12]}
    for rid, tokens in prompts.items():
        driver.submit(rid, tokens, max_tokens=7)
        driver.plan()
        driver.settle()
    tables = {rid: blocks_of(driver, rid)[:2] for rid in prompts}
    assert tables[1][0] == tables[2][0] and tables[1][1] != tables[2][1]
    driver.abort(ends)
    other = 3 - ends
    assert blocks_of(driver, other)[:2] == tables[other]
    driver.run()
    assert driver.outputs[other] == continuation(prompts[other], 7)


# What is found


def test_a_cached_prefix_is_found():
    """As far as it goes. (BK-4)"""
    driver = cached()
    ran(driver, 1, ONE_TO_8)
    assert ran(driver, 2, [1, 2, 3, 4, 9, 10, 11, 12]) == 4
    assert ran(driver, 3, [5, 6, 7, 8, 1, 2, 3, 4]) == 0


@pytest.mark.parametrize(("tokens", "hits"), [([42], 0), ([1, 2, 3, 4], 0), (ONE_TO_8, 4)])
def test_the_last_token_of_a_prompt_is_always_computed(tokens, hits):
    """Its block is not reused, though it is cached. (BK-9)"""
    driver = cached()
    assert [ran(driver, rid, tokens) for rid in (1, 2)] == [0, hits]


def test_a_preempted_prefill_finds_what_it_has_computed():
    """Of 8 tokens 4 were: it goes on with the other 4. (BK-9)"""
    driver = cached(budget=4)
    driver.submit(1, ONE_TO_8, max_tokens=3)
    driver.turn()
    driver.core.preempt(1)
    step = driver.plan()
    assert (driver.counts_of(step), step.starts.tolist()) == ([4], [4])
    driver.run()
    assert driver.outputs[1] == continuation(ONE_TO_8, 3)


@pytest.mark.parametrize(("committed", "hits"), [(20, 4), (12, 3)])
def test_generated_blocks_are_found(committed, hits):
    """A prompt of 8 and outputs 100..: a prompt of 20 tokens that begins with them finds what is committed. (BK-10)"""
    driver = cached(blocks=100)
    driver.submit(1, ONE_TO_8)
    for token in range(100, 101 + committed - 8):
        driver.plan()
        driver.settle(token)
    assert driver.core.table.committed[row_of(driver, 1)] == committed
    assert watermark(driver, 1) == committed
    driver.submit(2, ONE_TO_8 + list(range(100, 112)))
    step = driver.plan()
    assert rids(driver, step) == [1, 2]
    assert step.starts[1] == 4 * hits


def test_what_is_committed_is_published_block_by_block():
    """10 tokens: 8; 16: 16; without a row: nothing. (BK-11)"""
    driver = cached()
    driver.submit(1, list(range(1, 11)))
    driver.turn()
    assert watermark(driver, 1) == 8
    while driver.core.table.committed[row_of(driver, 1)] < 16:
        driver.turn()
    assert watermark(driver, 1) == 16
    driver.core.preempt(1)
    assert watermark(driver, 1) == 0


def test_without_a_cache_nothing_is_published():
    """(BK-11)"""
    driver = Driver()
    driver.submit(1, list(range(1, 11)))
    driver.turn()
    assert (watermark(driver, 1), driver.core.pool.index_size) == (0, 0)


def test_other_keys_find_nothing():
    """Nine tokens 7 with an image, an adapter or a salt: found with the same, and by nobody else. (RG-19)"""
    driver = cached(blocks=40)
    kinds = [
        {"images": (Image("A", 0, 9, b"a"),)},
        {"images": (Image("B", 0, 9, b"b"),)},
        {"keys": CacheKeys(adapter="A")},
        {"keys": CacheKeys(adapter="B")},
        {"salt": "A"},
        {"salt": "B"},
        {},
    ]
    for turn, hits in enumerate([0, 8]):
        for place, kind in enumerate(kinds):
            assert ran(driver, 10 * turn + place, [7] * 9, **kind) == hits


def test_a_prompt_whose_log_probabilities_are_wanted_finds_nothing():
    """All of it must be computed; others find what it leaves."""
    driver = cached()
    ran(driver, 1, ONE_TO_8)
    assert ran(driver, 2, ONE_TO_8, sampling=Sampling(0.0, 0, 1.0, 0.0, prompt_logprobs=0)) == 0
    assert ran(driver, 3, ONE_TO_8) == 4


def test_a_prompt_in_chunks_is_found_whole():
    """512 tokens in 8 chunks of 64, blocks of 16: 31 hits; a token of a middle chunk counts for nothing. (EX-8)"""
    driver = cached(block_size=16, budget=64, blocks=40, max_model_len=1024)
    tokens = list(range(20, 532))
    driver.submit(1, tokens, max_tokens=1)
    samples = []
    while 1 not in driver.ended:
        step = driver.plan()
        assert driver.counts_of(step) == [64]
        samples += step.samples.tolist()
        driver.settle(*([] if samples[-1] else [777]))
    assert samples == [False] * 7 + [True]
    assert driver.outputs[1] == continuation(tokens, 1)
    assert ran(driver, 2, tokens) == 31 * 16


# Prompts that are computed just now


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("budget", [5, 64])
def test_a_prefix_that_two_requests_share_is_computed_once(depth, budget):
    """Both are live when it is not cached: the second waits for it, and then computes its own tokens."""
    driver = cached(depth=depth, budget=budget)
    prompts = {1: ONE_TO_8 + [1, 1, 1, 1, 1], 2: ONE_TO_8 + [2, 2, 2]}
    for rid, tokens in prompts.items():
        driver.submit(rid, tokens, max_tokens=4)
    driver.run()
    assert driver.outputs == {rid: continuation(tokens, 4) for rid, tokens in prompts.items()}
    assert driver.core.statistics.prompt_tokens == 13 + 3
    assert driver.opened == {1: 0, 2: 8}


def test_who_waits_for_a_prefix_lets_others_pass():
    """Nobody behind it waits for what it waits for."""
    driver = cached()
    for rid, tokens in {1: ONE_TO_8, 2: ONE_TO_8, 3: [9] * 8}.items():
        driver.submit(rid, tokens)
    assert rids(driver, driver.plan()) == [1, 3]
    driver.settle()
    assert rids(driver, driver.plan()) == [1, 3, 2]


@pytest.mark.parametrize("end", [lambda driver: driver.abort(1), lambda driver: driver.core.preempt(1)])
def test_the_next_one_takes_over_what_was_computed(end):
    """The first is aborted or preempted at 8 of 12 tokens; together they compute 12 and what each must."""
    driver = cached(budget=4)
    for rid in (1, 2):
        driver.submit(rid, list(range(1, 13)), max_tokens=3)
    driver.turn()
    driver.turn()
    end(driver)
    driver.run()
    assert driver.outputs[2] == continuation(list(range(1, 13)), 3)
    assert driver.core.statistics.prompt_tokens <= 12 + 4


# Results that are read


def test_a_step_of_middle_chunks_has_no_results():
    """Whatever stands in its slot. In a mixed step the decode and the last chunk give a token each. (EX-4, EX-5)"""
    driver = Driver(budget=8, blocks=20)
    driver.submit(1, [1] * 4)
    driver.submit(2, [2] * 9)
    step = driver.plan()
    assert (driver.counts_of(step), step.samples.tolist()) == ([4, 4], [True, False])
    driver.settle()
    driver.submit(3, [3] * 20)
    step = driver.plan()
    assert (driver.counts_of(step), step.samples.tolist()) == ([1, 5, 2], [True, True, False])
    driver.settle(50, 60, 70)
    assert {rid: tokens[-1] for rid, tokens in driver.outputs.items()} == {1: 50, 2: 60}
    assert len(driver.outputs[2]) == 1
    driver.abort(1)
    driver.abort(2)
    step = driver.plan()
    assert step.samples.tolist() == [False]
    driver.settle(70)
    assert 3 not in driver.outputs and 3 not in driver.ended


# What is told


def test_stored_is_told_once():
    """[1..8] was computed: two hashes of blocks of 4, on the GPU; then nothing. (EV-3)"""
    driver = cached(blocks=8, publish_events=True)
    driver.submit(1, ONE_TO_8)
    driver.plan()
    assert events(driver) == []
    driver.settle()
    (stored,) = told(driver.core.pool)
    assert isinstance(stored, Stored)
    assert stored.digests == tuple(driver.request(1).digests[:2])
    assert (len(stored.digests), stored.block_size, stored.medium, stored.parent) == (2, 4, GPU, None)
    assert events(driver) == []


@pytest.mark.parametrize("live", [True, False])
def test_what_is_stored_is_not_told_again(live):
    """The same prompt again, whether the first one lives or is cached. (EV-4)"""
    driver = cached(blocks=8, publish_events=True)
    driver.submit(1, ONE_TO_8, max_tokens=64 if live else 1)
    driver.turn()
    assert (1 in driver.core) == live
    told(driver.core.pool)
    driver.submit(2, ONE_TO_8)
    step = driver.plan()
    assert rids(driver, step)[-1] == 2
    driver.settle()
    assert driver.core.table.committed[row_of(driver, 2)] == 8
    assert events(driver) == []


@pytest.mark.parametrize(("blocks", "told"), [(1, [Stored, Removed, Stored]), (8, [Stored, Stored])])
def test_removed_is_told_before_the_stored_that_takes_the_block(blocks, told):
    """[1, 2, 3, 4] has ended, then [9, 9, 9, 9]; where there is room nothing is removed. (EV-5)"""
    driver = cached(blocks=blocks, publish_events=True)
    ran(driver, 1, [1, 2, 3, 4])
    ran(driver, 2, [9, 9, 9, 9])
    assert events(driver) == told


@pytest.mark.parametrize(
    "end",
    [lambda driver: driver.abort(1), lambda driver: driver.core.preempt(1), lambda driver: driver.settle(5)],
    ids=["abort", "preempt", "finish"],
)
def test_the_end_of_a_request_removes_nothing(end):
    """Its blocks stay cached. (EV-7)"""
    driver = cached(publish_events=True)
    driver.submit(1, ONE_TO_8, max_tokens=2)
    driver.turn()
    told(driver.core.pool)
    driver.plan()
    end(driver)
    assert driver.core.table.taken == 0
    assert events(driver) == []
    assert driver.core.pool.index_size == 2


def test_without_events_none_is_built(monkeypatch):
    """Whatever happens. (EV-2)"""

    def fail(*_args):
        raise AssertionError("a change was described")

    monkeypatch.setattr(bulletin, "KvChange", fail)
    driver = cached(blocks=4)
    for rid in range(4):
        driver.submit(rid, [rid + 20] * 3, max_tokens=6)
    driver.run()
    assert driver.core.statistics.preemptions
    driver.reset_cache(99)
    assert driver.ended[99].finish is Finish.STOP
    assert told(driver.core.pool) == []


def test_a_step_tells_of_so_many_blocks_and_the_next_of_the_others(monkeypatch):
    """Hits of 6 blocks each, and a step that can tell of 13: two are admitted, then the others."""
    monkeypatch.setattr("fourstroke.procs.scheduler.planning.step.MAX_TOLD_BLOCKS", 13)
    driver = Driver(cache=True, blocks=100, budget=256, rows=8)
    shared = prompt(1, 24)
    driver.submit(0, [*shared, 5], max_tokens=40)
    driver.turn()
    for rid in range(1, 6):
        driver.submit(rid, [*shared, 5 + rid], max_tokens=2)
    steps = [driver.rids_of(driver.plan())]
    driver.settle()
    steps.append(driver.rids_of(driver.plan()))
    driver.settle()
    assert steps == [[0, 1, 2], [0, 1, 2, 3, 4]]
    driver.run()
    assert {rid: len(tokens) for rid, tokens in driver.outputs.items()} == {0: 39, **dict.fromkeys(range(1, 6), 2)}


def test_tables_that_no_step_can_tell_of_are_refused():
    """Blocks of one token and a length of 65,537."""
    with pytest.raises(ConfigError, match="65537 blocks"):
        Driver(block_size=1, max_model_len=65_537, rows=1)
