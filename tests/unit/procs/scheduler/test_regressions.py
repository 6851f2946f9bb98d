"""What engines like this one have got wrong before: lengths, preemption, thrash, chunks and the cache.

A name in brackets is the row of the scheduling rules that the test shows; the set-up is the driver's:
block 4, 10 blocks, 4 rows, budget 64, model length 64, depth 1, unless a test says otherwise.
"""

import pytest

from fourstroke.common.types import Finish
from fourstroke.ipc.events import Cleared
from fourstroke.procs.executor.fake import continuation
from fourstroke.procs.scheduler.planning.forecast import Forecast
from fourstroke.procs.scheduler.policy import TwoBatch

from .cache.chains import told
from .driver import Driver, Switch

# Lengths


def test_requests_run_in_pairs_when_two_rows_are_there():
    """Six requests of 8 tokens with two rows end after 8, 16 and 24 steps. (RG-3)"""
    driver = Driver(rows=2, budget=1000, blocks=100)
    for rid in range(1, 7):
        driver.submit(rid, [1, 2, 3, 4], max_tokens=8, ignore_eos=True)
    ended = {}
    for step in range(1, 25):
        driver.turn()
        assert driver.core.counts().running <= 2
        for rid in driver.ended:
            ended.setdefault(rid, step)
    assert ended == {1: 8, 2: 8, 3: 16, 4: 16, 5: 24, 6: 24}


def test_the_model_length_ends_a_request():
    """Limit 16, prompt 10: the request ends with 16 tokens in all. (RG-4)"""
    driver = Driver(max_model_len=16)
    driver.submit(1, [1] * 10)
    driver.run(30)
    assert len(driver.outputs[1]) == 6
    assert driver.ended[1].finish is Finish.LENGTH


@pytest.mark.parametrize("depth", [1, 2])
def test_a_pool_that_is_full_ends_the_only_request(depth):
    """Two blocks, prompt of 4: length after five outputs, which are kept. (RG-5)"""
    driver = Driver(blocks=2, depth=depth)
    driver.submit(1, [1, 2, 3, 4], max_tokens=1000)
    driver.run()
    assert driver.outputs[1] == continuation([1, 2, 3, 4], 5)
    assert (driver.ended[1].finish, driver.ended[1].detail) == (Finish.LENGTH, "kv_capacity")


def test_who_waits_for_a_full_pool_is_planned_as_soon_as_it_is_free():
    """The plan that ends a request for want of blocks is the plan that admits the next one."""
    driver = Driver(blocks=1)
    driver.submit(1, [1, 2, 3, 4])
    driver.turn()
    driver.submit(2, [5, 6])
    step = driver.plan()
    assert driver.ended[1].detail == "kv_capacity"
    assert driver.rids_of(step) == [2]


def test_a_table_grows_by_what_a_step_needs():
    """8 tokens in 2 blocks, a decode with 3 drafts: 3 blocks. (RG-6)"""
    driver = Driver(drafts=3, accept=0.0)
    driver.submit(1, list(range(10, 18)))
    step = driver.plan()
    assert driver.core.table.blocks[step.rows].tolist() == [2]
    driver.settle(50, drafts=[[61, 62, 63]])
    step = driver.plan()
    assert (step.starts.tolist(), driver.counts_of(step)) == ([8], [4])
    assert driver.core.table.blocks[step.rows].tolist() == [3]


def test_no_stop_sequence_begins_in_the_prompt():
    """The prompt ends in 13, stop [13, 77], sampled 77: the request goes on. (RG-7)"""
    driver = Driver()
    driver.submit(1, [11, 12, 13], stop_sequences=((13, 77),))
    driver.plan()
    driver.settle(77)
    assert driver.outputs == {1: [77]}
    assert driver.ended == {}


# Preemption


def test_a_preempted_request_computes_its_outputs_again_before_it_decodes():
    """20 tokens known: chunks of 8, 8 and 4, of which the last samples. (RG-1)"""
    driver = Driver(budget=8, blocks=100)
    prompt = list(range(10, 18))
    driver.submit(1, prompt)
    while len(driver.outputs.get(1, [])) < 12:
        driver.turn()
    driver.core.preempt(1)
    chunks = []
    while len(driver.outputs[1]) < 13:
        step = driver.plan()
        chunks.append((driver.tokens_of(step), step.samples.tolist()))
        driver.settle()
    known = prompt + continuation(prompt, 12)
    assert chunks == [([known[:8]], [False]), ([known[8:16]], [False]), ([known[16:]], [True])]
    assert driver.outputs[1] == continuation(prompt, 13)


def test_a_late_result_of_a_preempted_row_is_dropped():
    """Depth 2, 100 and 101 are settled, a third token is in flight: after the preemption two are known. (RG-12)"""
    driver = Driver(depth=2)
    driver.submit(1, [1, 2, 3, 4])
    driver.plan()
    driver.plan()
    driver.settle(100)
    driver.plan()
    driver.settle(101)
    driver.core.preempt(1)
    driver.settle(102)
    assert driver.outputs == {1: [100, 101]}
    assert driver.request(1).tokens.tolist() == [1, 2, 3, 4, 100, 101]
    assert driver.core.statistics.late_results == 1


def test_a_token_in_flight_is_sampled_again():
    """Depth 2, preempted with a third token in flight: run on, it is the text of one that was left alone.

    It has its row again when the late result comes. (RG-13)
    """
    driver = Driver(depth=2, blocks=20)
    driver.submit(1, [1, 2, 3, 4])
    for _ in range(3):
        driver.turn()
    assert (len(driver.outputs[1]), len(driver.pending)) == (2, 1)
    driver.core.preempt(1)
    assert driver.counts_of(driver.plan()) == [6]
    driver.settle()
    assert len(driver.outputs[1]) == 2
    driver.run()
    assert driver.outputs[1] == continuation([1, 2, 3, 4], 60)


@pytest.mark.parametrize("depth", [1, 2])
def test_preemption_changes_no_token(depth):
    """Requests that are preempted again and again give the tokens that they give alone."""
    driver = Driver(blocks=6, depth=depth)
    prompts = {rid: [rid + 3] * (rid + 2) for rid in range(4)}
    for rid, prompt in prompts.items():
        driver.submit(rid, prompt, max_tokens=12)
    driver.run()
    assert driver.core.statistics.preemptions > 0
    assert driver.outputs == {rid: continuation(prompt, 12) for rid, prompt in prompts.items()}


@pytest.mark.parametrize(
    "blocks, requests, prompt, max_tokens, most_prefilled, most_steps",
    [
        pytest.param(256, 64, 64, 128, 5325, 1700, id="64-requests"),
        pytest.param(64, 20, 32, 64, 832, 660, id="20-requests"),
    ],
)
@pytest.mark.parametrize("depth", [1, 2])
def test_thrash_is_bounded(depth, blocks, requests, prompt, max_tokens, most_prefilled, most_steps):
    """Headroom and the cap after a preemption bound what is computed twice, to 1.3 times at most. (RG-14, RG-15)"""
    driver = Driver(blocks=blocks, rows=64, budget=1000, max_model_len=256, headroom=64, depth=depth)
    for rid in range(requests):
        driver.submit(rid, [rid + 3] * prompt, max_tokens=max_tokens)
    driver.run()
    assert [len(driver.outputs[rid]) for rid in range(requests)] == [max_tokens] * requests
    assert driver.core.statistics.prompt_tokens <= most_prefilled
    assert driver.core.statistics.steps_planned <= most_steps


def test_what_comes_back_is_chunked_where_prompts_are_not():
    """Chunking off, budget 8, 11 tokens known: admitted again in chunks, it goes on. (RG-32)"""
    driver = Driver(chunked=False, budget=8)
    prompt = [1, 2, 3, 4, 5, 6]
    driver.submit(1, prompt, max_tokens=10)
    for _ in range(5):
        driver.turn()
    assert len(driver.outputs[1]) == 5
    driver.core.preempt(1)
    assert driver.counts_of(driver.plan()) == [8]
    driver.settle()
    assert driver.counts_of(driver.plan()) == [3]
    driver.settle()
    driver.run()
    assert driver.outputs[1] == continuation(prompt, 10)
    assert driver.ended[1].finish is Finish.LENGTH


# Chunks and gates


def test_a_prefill_that_a_gate_refuses_has_no_row():
    """Budget 8, prompt 20, first chunk 8: no decode row either; then it goes on where it was. (RG-2)"""
    gate = Switch()
    driver = Driver(budget=8, gate=gate)
    driver.submit(1, [1] * 20)
    driver.turn()
    gate.open = False
    assert driver.plan() is None
    gate.open = True
    step = driver.plan()
    assert (driver.counts_of(step), step.starts.tolist()) == ([8], [8])


def test_a_long_prompt_never_stops_a_running_stream():
    """While a prompt of 2,048 tokens is prefilled each step has a decode row. (RG-16)"""
    driver = Driver(budget=64, blocks=1000, max_model_len=4096)
    driver.submit(1, [1, 2, 3], max_tokens=200)
    driver.turn()
    driver.submit(2, [9] * 2048, max_tokens=1)
    while 2 not in driver.ended:
        step = driver.plan()
        assert driver.core.table.rid[step.rows[step.decodes]].tolist() == [1]
        driver.settle()


def test_a_prompt_above_the_budget_is_ready_with_its_chunk():
    """Budget 8, prompt 20: prefillable; ahead are 8 tokens in 1 row. (RG-23)"""
    gate = Switch()
    driver = Driver(budget=8, gate=gate)
    driver.submit(1, [1] * 20)
    assert driver.core.forecast() == Forecast(1, 8, 0, 0)
    driver.plan()
    (view,) = gate.views
    assert (view.prefillable, view.pending_tokens) == (True, 8)


def test_readiness_counts_what_fits_together():
    """3 blocks, two prompts of 2: one is admittable, too few for two micro-batches. (RG-24)"""
    gate = Switch()
    driver = Driver(blocks=3, gate=gate, two_batch=TwoBatch.BY_REQUEST)
    driver.submit(1, [1] * 8)
    driver.submit(2, [2] * 8)
    assert driver.core.forecast() == Forecast(1, 8, 0, 0)
    assert driver.counts_of(driver.plan()) == [8]
    (view,) = gate.views
    assert (view.prefillable, view.ready, view.pending_tokens) == (True, False, 8)


# The prefix cache


def test_usage_reports_the_hit_of_the_first_admission():
    """Preempted, it finds its own blocks: that is no hit, and the request counts once. (RG-33)"""
    driver = Driver(cache=True, budget=8)
    driver.submit(1, list(range(1, 10)), max_tokens=3)
    driver.turn()
    driver.core.preempt(1)
    step = driver.plan()
    assert (driver.counts_of(step), step.starts.tolist()) == ([1], [8])
    driver.settle()
    assert driver.opened == {1: 0}
    stats = driver.core.cache_stats
    assert (stats.total_requests, stats.total_cached_tokens, stats.total_full_tokens) == (1, 0, 9)


def test_a_cache_that_was_reset_has_nothing():
    """The prompt that ran before is computed whole, and the world was told. (RG-34)"""
    driver = Driver(cache=True, publish_events=True)
    prompt = list(range(1, 10))
    driver.submit(1, prompt, max_tokens=1)
    driver.run()
    driver.reset_cache(99)
    assert told(driver.core.pool)[-1] == Cleared()
    assert driver.core.pool.index_size == 0
    driver.submit(2, prompt)
    assert driver.counts_of(driver.plan()) == [9]
    driver.settle()
    assert driver.opened[2] == 0
