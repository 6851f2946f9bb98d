"""The whole ring in one process: texts do not depend on how the work was arranged, and nothing is lost."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fourstroke.common.types import Finish
from fourstroke.procs.executor.fake import EOS_TOKEN_ID, continuation

from .ring import Ring, answer, check_answer, text_of

PROMPTS = [[20 + request] * (3 + 5 * request) for request in range(8)]


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("budget", [8, 64, 1024], ids=["small-chunks", "chunks", "whole"])
@pytest.mark.parametrize("blocks", [24, 400], ids=["preempting", "roomy"])
@pytest.mark.parametrize("rows", [1, 8], ids=["alone", "batch"])
def test_text_does_not_depend_on_the_arrangement(depth, budget, blocks, rows):
    """Alone or in a batch, chunked or whole, preempted or not, depth 1 or 2: the same text."""
    ring = Ring(depth=depth, budget=budget, blocks=blocks, rows=rows)
    requests = [ring.submit(prompt, max_tokens=40) for prompt in PROMPTS]
    ring.run()
    for request, prompt in zip(requests, PROMPTS, strict=True):
        check_answer(request, prompt, 40)


def test_a_small_pool_preempts():
    """The equality above is about preemption only if the small pool preempts."""
    ring = Ring(blocks=24)
    for prompt in PROMPTS:
        ring.submit(prompt, max_tokens=40)
    ring.run()
    assert ring.scheduler.core.statistics.preemptions > 0


def test_a_stop_string_ends_the_text_and_the_work():
    """The stop string is found behind the scheduler, which may be ahead: text, ids and count agree."""
    prompt = [30, 31, 32]
    expected = continuation(prompt, 40)
    ring = Ring()
    request = ring.submit(prompt, max_tokens=200, stop=f"<{expected[9]}>")
    other = ring.submit([33, 34], max_tokens=60)
    ring.run()
    got = answer(request)
    assert got.text == text_of(expected[:9])
    assert got.tokens == expected[:10]
    assert (got.ending.finish, got.ending.tokens) == (Finish.STOP, 10)
    assert ring.scheduler.core.statistics.generation_tokens < 200
    check_answer(other, [33, 34], 60)


def test_eos_has_no_text():
    """A request that samples EOS ends there; EOS is counted and not shown."""
    ring = Ring(rows=64, blocks=4096, max_model_len=2048)
    requests = [(ring.submit([40, n], max_tokens=1500, ignore_eos=False), [40, n]) for n in range(20)]
    ring.run()
    stopped = 0
    for request, prompt in requests:
        got = answer(request)
        expected = continuation(prompt, 1500)
        if EOS_TOKEN_ID in expected:
            stopped += 1
            expected = expected[: expected.index(EOS_TOKEN_ID) + 1]
            assert got.ending.finish is Finish.STOP
        assert got.tokens == expected
        assert got.text == text_of(expected)
    assert stopped > 0


@pytest.mark.parametrize("turns", [0, 1, 2, 3, 5, 8, 13])
def test_a_client_that_leaves_frees_everything(turns):
    """Wherever its request is: the others go on, nothing is held when they have ended."""
    ring = Ring(budget=16)
    leaving = ring.submit([50] * 60, max_tokens=100)
    staying = ring.submit([51] * 5, max_tokens=30)
    for _ in range(turns):
        ring.turn()
    ring.table.abandon(leaving)
    ring.run()
    check_answer(staying, [51] * 5, 30)


def test_choices_are_independent_requests():
    """Three choices of one prompt, greedy: three equal texts."""
    ring = Ring()
    request = ring.submit([60, 61], n=3, max_tokens=12)
    ring.run()
    expected = text_of(continuation([60, 61], 12))
    assert [answer(request, index).text for index in range(3)] == [expected] * 3


def test_a_prompt_ring_that_is_full_loses_nothing():
    """Prompts wait in ingest, in order, until the scheduler has taken others."""
    ring = Ring(prompt_ring=64)
    prompts = [[70 + n] * 30 for n in range(10)]
    requests = [ring.submit(prompt, max_tokens=4) for prompt in prompts]
    ring.run()
    for request, prompt in zip(requests, prompts, strict=True):
        check_answer(request, prompt, 4)


def test_output_that_stands_still_loses_nothing():
    """The scheduler keeps what the ring has no room for, stops planning, and goes on when output does."""
    ring = Ring(token_ring=16)
    requests = [ring.submit(prompt, max_tokens=60) for prompt in PROMPTS]
    for _ in range(300):
        ring.turn_ingest()
        ring.scheduler.turn()
        ring.turn_executor()
    planned = ring.scheduler.core.statistics.steps_planned
    assert ring.scheduler.output_is_behind
    ring.scheduler.turn()
    assert ring.scheduler.core.statistics.steps_planned == planned
    ring.run()
    for request, prompt in zip(requests, PROMPTS, strict=True):
        check_answer(request, prompt, 60)


def test_wires_that_are_full_lose_nothing():
    """With room for two messages on each wire the texts are the same."""
    ring = Ring(high_water_mark=2)
    requests = [ring.submit(prompt, max_tokens=20) for prompt in PROMPTS]
    ring.run()
    for request, prompt in zip(requests, PROMPTS, strict=True):
        check_answer(request, prompt, 20)


ARRANGEMENTS = st.fixed_dictionaries(
    {
        "rows": st.integers(1, 8),
        "budget": st.integers(1, 80),
        "depth": st.sampled_from([1, 2]),
        "blocks": st.integers(20, 64),
        "block_size": st.sampled_from([4, 16]),
        "prompt_ring": st.integers(64, 256),
        "token_ring": st.integers(16, 64),
        "high_water_mark": st.integers(1, 8),
    }
)
STROKES = st.lists(st.sampled_from(["ingest", "scheduler", "executor", "output", "submit", "leave"]), max_size=120)


@settings(max_examples=100, deadline=None)
@given(arrangement=ARRANGEMENTS, strokes=STROKES, data=st.data())
def test_any_order_of_turns(arrangement, strokes, data):
    """The strokes take turns in any order, clients come and leave: texts are right and nothing is held."""
    ring = Ring(**arrangement, max_model_len=64)
    requests, left = [], set()
    turns = {
        "ingest": ring.turn_ingest,
        "scheduler": ring.scheduler.turn,
        "executor": ring.turn_executor,
        "output": ring.output.run,
    }
    for stroke in strokes:
        if stroke in turns:
            turns[stroke]()
        elif stroke == "submit":
            prompt = data.draw(st.lists(st.integers(17, 99), min_size=1, max_size=30))
            requests.append((ring.submit(prompt, max_tokens=20), prompt))
        elif requests:
            request, _ = data.draw(st.sampled_from(requests))
            left.add(request)
            ring.table.abandon(request)
    ring.run()
    for request, prompt in requests:
        if request not in left:
            check_answer(request, prompt, 20)
