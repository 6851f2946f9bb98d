"""Requests whose KV comes from another engine, through the scheduler's core.

A name in brackets is the row of the scheduling rules that the test shows; the set-up is the driver's:
block 4, 10 blocks, 4 rows, budget 64, model length 64, depth 1, unless a test says otherwise.
"""

import numpy as np
import pytest

from fourstroke.common.types import Finish, TransferAction, TransferOutcome
from fourstroke.ipc.events import GPU, Stored
from fourstroke.ipc.messages import KvTransfer, Sampling
from fourstroke.procs.executor.fake import EOS_TOKEN_ID, continuation
from fourstroke.procs.scheduler.planning.forecast import Forecast
from fourstroke.procs.scheduler.request import Phase
from fourstroke.procs.scheduler.transfer.reports import read_report

from .cache.chains import told
from .driver import Driver, Switch
from .remote import Partly, actions, blocks_of, consumer, elsewhere, prompt, rids, row_of

# A request is received


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("tokens", [1, 10, 12])
@pytest.mark.parametrize("with_first", [False, True])
def test_a_received_request_says_what_it_would_have_said_here(depth, tokens, with_first):
    """With the other engine's first token and without; its prompt is not prefilled again."""
    driver = consumer(depth=depth)
    text = continuation(prompt(1, tokens), 9)
    driver.submit(1, prompt(1, tokens), max_tokens=9, remote=elsewhere(text[0] if with_first else -1))
    driver.submit(2, prompt(2, 5), max_tokens=9)
    driver.turn()
    driver.arrive(1)
    driver.run()
    assert driver.outputs == {1: text, 2: continuation(prompt(2, 5), 9)}
    assert driver.core.statistics.prompt_tokens == 5 + (not with_first)
    assert driver.core.pool.free == 10


def test_the_order_has_blocks_for_all_of_the_prompt():
    """And for nothing else; the request has these blocks, and no step while they are being filled."""
    driver = consumer()
    driver.submit(1, prompt(1, 10), remote=elsewhere())
    assert driver.plan() is None
    assert driver.core.counts() == (0, 0, 1)
    blocks = np.array(blocks_of(driver, 1), "<i4")
    assert len(blocks) == 3
    assert driver.orders == [KvTransfer(1, 0, TransferAction.RECEIVE, blocks.tobytes(), elsewhere())]


def test_a_row_must_be_free_for_a_request_that_receives():
    """Cap 2, two decode: the third is not parked and nothing is started for it. (TR-1)"""
    driver = consumer(rows=2)
    driver.submit(1, prompt(1, 4))
    driver.submit(2, prompt(2, 4))
    driver.turn()
    driver.submit(3, prompt(3, 4), remote=elsewhere())
    assert rids(driver, driver.plan()) == [1, 2]
    assert (driver.core.counts(), driver.orders) == ((2, 1, 0), [])


def test_who_has_come_is_promoted_before_anybody_is_admitted():
    """2 and 3 are parked, 1 is fresh; 2 has come: it decodes, 1 is prefilled, 3 stays where it is. (TR-2)"""
    driver = consumer()
    for rid in (2, 3):
        driver.submit(rid, prompt(rid, 4), remote=elsewhere(77))
    assert driver.plan() is None
    driver.submit(1, prompt(1, 4))
    driver.core.transfer_report(read_report("2", "0", int(TransferOutcome.RECEIVED)))
    step = driver.plan()
    assert (rids(driver, step), step.decodes.tolist()) == ([2, 1], [True, False])
    assert driver.core.counts() == (2, 0, 1)
    assert driver.request(3).phase is Phase.PARKED


def test_parked_requests_count_until_they_resume():
    """(TR-5)"""
    driver = consumer()
    driver.submit(1, prompt(1, 4), remote=elsewhere(77))
    driver.plan()
    assert driver.core.counts() == (0, 0, 1)
    driver.arrive(1)
    driver.plan()
    assert driver.core.counts() == (1, 0, 0)


def test_the_rest_of_a_running_prefill_may_come_from_elsewhere():
    """At 8 of 20 tokens it is parked: no row, no prefill in its middle; then it goes on with what came. (TR-6)"""
    gate = Switch()
    driver = consumer(budget=8, gate=gate)
    driver.submit(1, prompt(1, 20), max_tokens=5)
    driver.turn()
    own = blocks_of(driver, 1)
    driver.plan()
    assert (len(own), gate.views[-1].partial) == (2, True)
    driver.settle()
    driver.request(1).remote = elsewhere()
    driver.core.fetch(1, driver.now)
    assert driver.plan() is None
    assert driver.core.counts() == (0, 0, 1)
    assert (gate.views[-1].partial, gate.views[-1].prefillable) == (False, False)
    assert blocks_of(driver, 1)[:2] == own
    driver.arrive(1)
    driver.run()
    assert driver.outputs[1] == continuation(prompt(1, 20), 5)
    assert driver.core.statistics.prompt_tokens == 16 + 1


def test_what_did_not_come_is_computed():
    """8 of 10 tokens came: a chunk of 2, which samples 999. (TR-7)"""
    driver = consumer(depth=2, connector=Partly({10: 8}))
    driver.submit(1, prompt(1, 10), remote=elsewhere(77))
    driver.plan()
    driver.arrive(1)
    step = driver.plan()
    assert (driver.counts_of(step), step.starts.tolist()) == ([2], [8])
    driver.settle(999)
    assert driver.core.table.committed[row_of(driver, 1)] == 10
    assert driver.outputs == {1: [999]}


def test_a_request_that_is_here_is_not_fetched():
    """All of its prompt but the block that is computed in any case is cached; so is that of a second one like it."""
    driver = consumer(cache=True)
    driver.submit(1, prompt(1, 9), max_tokens=1)
    driver.run()
    driver.submit(2, prompt(1, 9), max_tokens=4, remote=elsewhere(77))
    assert driver.counts_of(driver.plan()) == [1]
    assert driver.orders == []
    driver.run()
    assert driver.outputs[2] == continuation(prompt(1, 9), 4)


def test_a_prompt_whose_log_probabilities_are_wanted_is_prefilled_here():
    """They do not come with the KV."""
    driver = consumer()
    sampling = Sampling(0.0, 0, 1.0, 0.0, prompt_logprobs=1)
    driver.submit(1, prompt(1, 6), remote=elsewhere(77), sampling=sampling)
    assert driver.counts_of(driver.plan()) == [6]
    assert driver.orders == []


def test_a_request_with_state_is_prefilled_here():
    """What comes is KV, and without the state behind it that is worth nothing."""
    driver = consumer(state_slots=4)
    driver.submit(1, prompt(1, 6), max_tokens=5, remote=elsewhere(77))
    driver.run()
    assert driver.orders == []
    assert driver.outputs[1] == continuation(prompt(1, 6), 5)


def test_a_received_request_shares_no_block():
    """A prefix that is in use here costs it as many blocks as any other: with 2 free it waits."""
    driver = consumer(cache=True, blocks=4)
    driver.submit(1, prompt(1, 5), max_tokens=2)
    driver.turn()
    assert driver.core.pool.free == 2
    driver.submit(2, prompt(1, 12), max_tokens=3, remote=elsewhere())
    driver.turn()
    assert driver.ended[1].finish is Finish.LENGTH
    assert (driver.core.counts(), driver.orders) == ((0, 1, 0), [])
    assert driver.plan() is None
    driver.arrive(2)
    driver.run()
    assert driver.outputs[2] == continuation(prompt(1, 12), 3)


def test_a_remote_request_without_blocks_starts_nothing():
    """3 blocks are busy; when they are free it is fetched, once, and no row is prefilled for it. (RG-21)"""
    driver = consumer(blocks=3)
    driver.submit(1, prompt(1, 12), max_tokens=1)
    driver.plan()
    driver.submit(2, prompt(2, 12), max_tokens=1, remote=elsewhere(77))
    assert (driver.plan(), driver.orders) == (None, [])
    driver.settle()
    for _ in range(2):
        assert driver.plan() is None
        assert actions(driver) == [(2, TransferAction.RECEIVE)]
        assert driver.core.counts() == (0, 0, 1)


def test_parked_requests_have_rows():
    """Cap 2, five remote requests that are all ready at once: running and parked are never more than 2. (RG-26)"""
    driver = consumer(rows=2)
    for rid in range(5):
        driver.submit(rid, prompt(rid, 4), max_tokens=3, remote=elsewhere(77))
    arrived, served = 0, set()
    while driver.core.alive:
        served.update(rids(driver, driver.plan()))
        running, _, parked = driver.core.counts()
        assert running + parked <= 2
        for order in driver.orders[arrived:]:
            driver.arrive(order.rid)
        arrived = len(driver.orders)
        if driver.pending:
            driver.settle()
    assert served == driver.ended.keys() == set(range(5))


def test_who_has_come_does_not_wait_behind_others():
    """w came before x and y; x runs when its KV is here: w decodes at once, and y is admitted after it. (RG-27)"""
    w, x, y = 1, 2, 3
    driver = consumer(budget=4)
    driver.submit(w, prompt(w, 4), remote=elsewhere(77))
    driver.submit(x, prompt(x, 4))
    driver.submit(y, prompt(y, 4))
    assert rids(driver, driver.plan()) == [x]
    driver.settle()
    driver.arrive(w)
    step = driver.plan()
    assert (rids(driver, step), driver.counts_of(step)) == ([w, x, y], [1, 1, 2])


def test_no_gate_holds_back_who_has_come():
    """The gate is shut: the request is promoted and decodes. (RG-28)"""
    gate = Switch()
    driver = consumer(gate=gate)
    driver.submit(1, prompt(1, 4), remote=elsewhere(77))
    driver.plan()
    gate.open = False
    driver.arrive(1)
    step = driver.plan()
    assert (rids(driver, step), step.decodes.tolist()) == ([1], [True])
    assert driver.outputs == {1: [77]}


@pytest.mark.parametrize(
    ("token", "limits", "finish"),
    [(77, {"max_tokens": 1}, Finish.LENGTH), (EOS_TOKEN_ID, {"ignore_eos": False}, Finish.STOP)],
)
def test_the_first_token_may_be_the_last(token, limits, finish):
    """It passes the stop rules like any other, and there is no decode row. (RG-29, RG-30)"""
    driver = consumer()
    driver.submit(1, prompt(1, 4), remote=elsewhere(token), **limits)
    driver.plan()
    driver.arrive(1)
    assert driver.plan() is None
    assert driver.outputs == {1: [token]}
    assert (driver.ended[1].finish, driver.ended[1].stop_token) == (finish, -1)
    assert (driver.core.alive, driver.core.pool.free) == (False, 10)


def test_a_received_prompt_may_be_all_that_was_wanted():
    """max_tokens 0: the other engine's token counts for nothing, and the request ends."""
    driver = consumer()
    driver.submit(1, prompt(1, 4), max_tokens=0, remote=elsewhere(77))
    driver.plan()
    driver.arrive(1)
    driver.run()
    assert driver.outputs == {}
    assert driver.ended[1].finish is Finish.LENGTH


def test_received_blocks_are_published_like_computed_ones():
    """12 tokens and a first token: three blocks are told, on the GPU, and what is ahead is a decode. (RG-20)"""
    driver = consumer(cache=True, publish_events=True)
    driver.submit(1, prompt(1, 12), remote=elsewhere(77))
    driver.plan()
    assert told(driver.core.pool) == []
    driver.arrive(1)
    driver.plan()
    (stored,) = told(driver.core.pool)
    assert isinstance(stored, Stored)
    assert (len(stored.digests), stored.medium, stored.block_size) == (3, GPU, 4)
    driver.settle()
    assert driver.core.forecast() == Forecast(0, 0, 1, 1)


@pytest.mark.parametrize(
    ("cache", "tokens", "published", "hits"), [(True, 12, 3, 2), (True, 10, 2, 2), (False, 12, 0, 0)]
)
def test_how_much_of_what_came_is_found(cache, tokens, published, hits):
    """The last block of the same prompt again is computed. (BK-12)"""
    driver = consumer(cache=cache)
    driver.submit(1, prompt(1, tokens), max_tokens=2, remote=elsewhere(continuation(prompt(1, tokens), 1)[0]))
    driver.plan()
    driver.arrive(1)
    driver.plan()
    assert driver.core.pool.index_size == published
    driver.submit(2, prompt(1, tokens), max_tokens=2)
    driver.run()
    assert driver.opened[2] == 4 * hits
    assert driver.outputs[1] == driver.outputs[2]


def test_a_received_request_that_is_preempted_is_computed_here():
    """With the other engine's token, which is told once."""
    driver = consumer()
    text = continuation(prompt(1, 6), 8)
    driver.submit(1, prompt(1, 6), max_tokens=8, remote=elsewhere(text[0], drafts=(1, 2, 3)))
    driver.plan()
    driver.arrive(1)
    driver.plan()
    driver.core.preempt(1)
    driver.run()
    assert driver.outputs[1] == text
    assert len(driver.orders) == 1


def test_choices_of_one_prompt_are_received_once():
    """The first one gets the KV and the other engine's token; the others hold its blocks and say their own."""
    for cache in (False, True):
        driver = consumer(cache=cache)
        text = continuation(prompt(1, 10), 4)
        driver.submit((1, 2, 3), prompt(1, 10), max_tokens=4, remote=elsewhere(text[0]))
        assert driver.plan() is None
        assert driver.core.counts() == (0, 2, 1)
        driver.arrive(1)
        driver.run()
        assert actions(driver) == [(1, TransferAction.RECEIVE)]
        assert driver.outputs == dict.fromkeys((1, 2, 3), text)
        assert driver.core.statistics.prompt_tokens == 2 + 2
        assert driver.core.pool.free == 10


# Rows that must keep their blocks


@pytest.mark.parametrize(("pinned", "current"), [(1, 2), (2, 1)])
def test_a_pinned_request_loses_no_block(pinned, current):
    """Two full blocks, both need a third: the one that is not being saved is preempted, whoever came first. (TR-3)"""
    driver = Driver(blocks=2)
    driver.submit(1, prompt(1, 4))
    driver.submit(2, prompt(2, 4))
    driver.turn()
    (own,) = blocks_of(driver, pinned)
    driver.core.table.pinned[row_of(driver, pinned)] = True
    step = driver.plan()
    assert rids(driver, step) == [pinned]
    assert driver.request(current).phase is Phase.PREEMPTED
    assert (len(blocks_of(driver, pinned)), blocks_of(driver, pinned)[0]) == (2, own)


def test_a_pinned_request_waits_for_the_end_of_its_save():
    """One block: no step, nothing changes; then it ends, and the next request is planned in its block. (TR-4)"""
    driver = Driver(blocks=1)
    driver.submit(1, prompt(1, 4))
    driver.turn()
    driver.submit(2, prompt(2, 4))
    (own,) = blocks_of(driver, 1)
    driver.core.table.pinned[row_of(driver, 1)] = True
    assert driver.plan() is None
    assert blocks_of(driver, 1) == [own]
    assert driver.ended == {}
    driver.core.table.pinned[row_of(driver, 1)] = False
    step = driver.plan()
    assert (driver.ended[1].finish, driver.ended[1].detail) == (Finish.LENGTH, "kv_capacity")
    assert (rids(driver, step), blocks_of(driver, 2)) == ([2], [own])


def test_who_wants_logprobs_samples_the_first_token_here():
    """A token that came with the KV has no log-probability: each emitted token has its entry."""
    driver = consumer()
    driver.submit(1, prompt(1, 8), max_tokens=3, sampling=Sampling(0.0, 0, 1.0, 0.0, logprobs=0), remote=elsewhere(77))
    driver.plan()
    driver.arrive(1)
    driver.run()
    assert driver.outputs[1] == continuation(prompt(1, 8), 3)
