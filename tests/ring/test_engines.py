"""Several engines behind one ingest and one output: the same texts as from one, and nothing is lost."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fourstroke.common.types import Finish

from .ring import Ring, answer, check_answer, text_of

PROMPTS = [[20 + request] * (3 + 5 * request) for request in range(9)]


def requests_of(ring: Ring) -> list[int]:
    """How many requests each engine has had."""
    return [engine.scheduler.core.statistics.requests for engine in ring.engines]  # type: ignore[union-attr]


@pytest.mark.parametrize("engines", [1, 2, 3])
@pytest.mark.parametrize("blocks", [24, 400], ids=["preempting", "roomy"])
def test_text_does_not_depend_on_the_engine(engines: int, blocks: int) -> None:
    """However many engines share the work, the texts are the same, and all engines work."""
    ring = Ring(engines=engines, blocks=blocks)
    requests = [ring.submit(prompt, max_tokens=40) for prompt in PROMPTS]
    ring.run()
    for request, prompt in zip(requests, PROMPTS, strict=True):
        check_answer(request, prompt, 40)
    assert sum(requests_of(ring)) == len(PROMPTS)
    assert min(requests_of(ring)) > 0


def test_choices_of_a_prompt_stay_together() -> None:
    """They share one prefill, so they are in one engine."""
    ring = Ring(engines=2)
    request = ring.submit([60, 61], n=4, max_tokens=12)
    ring.run()
    assert {answer(request, index).text for index in range(4)} == {answer(request).text}
    assert sorted(requests_of(ring)) == [0, 4]


def test_a_stop_string_reaches_the_engine() -> None:
    """Output's news ends the request in the engine that generates it, and no other."""
    plain = Ring()
    whole = plain.submit([30, 31, 32], max_tokens=40)
    plain.run()
    tokens = answer(whole).tokens
    ring = Ring(engines=2)
    requests = [ring.submit([30, 31, 32], max_tokens=200, stop=f"<{tokens[9]}>") for _ in range(4)]
    ring.run()
    for request in requests:
        got = answer(request)
        assert (got.text, got.tokens) == (text_of(tokens[:9]), tokens[:10])
        assert got.ending is not None and got.ending.finish is Finish.STOP


def test_an_engine_that_stands_still_holds_up_nobody_else() -> None:
    """Its own requests wait; the others end, new ones go elsewhere, and when it moves again all have ended."""
    ring = Ring(engines=2)
    moving = ring.engines[1]
    before = [ring.submit([20 + number] * 9, max_tokens=20) for number in range(6)]
    for _ in range(200):
        ring.turn_ingest()
        moving.scheduler.turn()
        moving.turn_executor()
        ring.output.run()
    ended = [answer(request).ending is not None for request in before]
    assert ended.count(True) == 3
    after = [ring.submit([40 + number] * 9, max_tokens=20) for number in range(3)]
    for _ in range(200):
        ring.turn_ingest()
        moving.scheduler.turn()
        moving.turn_executor()
        ring.output.run()
    assert all(answer(request).ending is not None for request in after)
    ring.run()
    for number, request in enumerate(before):
        check_answer(request, [20 + number] * 9, 20)


STROKES = st.lists(st.sampled_from(["ingest", "scheduler", "executor", "output", "submit", "leave"]), max_size=100)


@settings(max_examples=60, deadline=None)
@given(
    engines=st.integers(2, 3),
    high_water_mark=st.integers(1, 4),
    token_ring=st.integers(16, 64),
    strokes=STROKES,
    data=st.data(),
)
def test_any_order_of_turns(
    engines: int, high_water_mark: int, token_ring: int, strokes: list[str], data: st.DataObject
) -> None:
    """The strokes of all engines take turns in any order, clients come and leave: texts are right, nothing is held."""
    ring = Ring(
        engines=engines, high_water_mark=high_water_mark, token_ring=token_ring, prompt_ring=64, max_model_len=64
    )
    requests, left = [], set()
    for stroke in strokes:
        engine = data.draw(st.sampled_from(ring.engines))
        match stroke:
            case "ingest":
                ring.turn_ingest()
            case "scheduler":
                engine.scheduler.turn()
            case "executor":
                engine.turn_executor()
            case "output":
                ring.output.run()
            case "submit":
                prompt = data.draw(st.lists(st.integers(17, 20), min_size=1, max_size=30))
                requests.append((ring.submit(prompt, max_tokens=20), prompt))
            case "leave" if requests:
                request, _ = data.draw(st.sampled_from(requests))
                left.add(request)
                ring.table.abandon(request)
    ring.run()
    for request, prompt in requests:
        if request not in left:
            check_answer(request, prompt, 20)
