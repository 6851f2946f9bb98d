"""Several engines, ingests and outputs: the same texts as from one of each, and nothing is lost."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fourstroke.common.types import Finish
from fourstroke.procs.executor.fake import continuation

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


@pytest.mark.parametrize(("ingests", "engines", "outputs"), [(2, 1, 2), (3, 2, 1), (1, 1, 3), (2, 2, 2)])
def test_text_does_not_depend_on_who_tells_it(ingests: int, engines: int, outputs: int) -> None:
    """However many ingests and outputs share the work, the texts are the same, and all of them work."""
    ring = Ring(ingests=ingests, engines=engines, outputs=outputs)
    asked = [(number % ingests, prompt) for number, prompt in enumerate(PROMPTS)]
    requests = [ring.submit(prompt, ingest, max_tokens=40) for ingest, prompt in asked]
    scored = [ring.submit(prompt, ingest, max_tokens=40, n=3, logprobs=2) for ingest, prompt in asked]
    ring.run()
    for request, (_, prompt) in zip(requests, asked, strict=True):
        check_answer(request, prompt, 40)
    for request, (_, prompt) in zip(scored, asked, strict=True):
        assert [answer(request, index).text for index in range(3)] == [text_of(continuation(prompt, 40))] * 3
    told = [ring.board.row(f"output{output}")["detokenized_tokens"] for output in range(outputs)]
    assert sum(told) == 4 * 40 * len(PROMPTS) and min(told) > 0
    assert min(requests_of(ring)) > 0


def test_stop_strings_and_leaving_clients_of_several_ingests() -> None:
    """An output's news ends the request in its own ingest and engine; a client that leaves disturbs nobody else's."""
    ring = Ring(ingests=2, engines=2, outputs=2)
    tokens = continuation([30, 31, 32], 40)
    stopped = [ring.submit([30, 31, 32], ingest, max_tokens=200, stop=f"<{tokens[9]}>") for ingest in (0, 1, 0, 1)]
    left = [ring.submit([40, 41], ingest, max_tokens=200) for ingest in (0, 1)]
    others = [ring.submit([50, 51], ingest, max_tokens=30) for ingest in (0, 1)]
    for _ in range(5):
        ring.turn()
    for ingest, request in enumerate(left):
        ring.ingests[ingest].table.abandon(request)
    ring.run()
    for request in stopped:
        assert (answer(request).text, answer(request).tokens) == (text_of(tokens[:9]), tokens[:10])
    for request in others:
        check_answer(request, [50, 51], 30)


def test_an_output_that_stands_still() -> None:
    """Its requests wait, and no more than a bounded number of steps is planned; when it goes on all texts are right."""
    ring = Ring(outputs=2, token_ring=64)
    requests = [ring.submit(prompt, max_tokens=100) for prompt in PROMPTS]
    planned = []
    for _ in range(500):
        ring.turn_ingest()
        ring.turn_scheduler()
        ring.turn_executor()
        ring.outputs[1].run()
        planned.append(ring.scheduler.core.statistics.steps_planned)  # type: ignore[union-attr]
    assert len(set(planned[-100:])) == 1
    ring.run()
    for request, prompt in zip(requests, PROMPTS, strict=True):
        check_answer(request, prompt, 100)


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
    engines=st.integers(1, 3),
    ingests=st.integers(1, 3),
    outputs=st.integers(1, 3),
    high_water_mark=st.integers(1, 4),
    token_ring=st.integers(16, 64),
    strokes=STROKES,
    data=st.data(),
)
def test_any_order_of_turns(
    engines: int,
    ingests: int,
    outputs: int,
    high_water_mark: int,
    token_ring: int,
    strokes: list[str],
    data: st.DataObject,
) -> None:
    """All processes take turns in any order, clients come and leave: texts are right, nothing is held."""
    ring = Ring(
        engines=engines,
        ingests=ingests,
        outputs=outputs,
        high_water_mark=high_water_mark,
        token_ring=token_ring,
        prompt_ring=64,
        max_model_len=64,
    )
    requests, left = [], set()
    for stroke in strokes:
        engine = data.draw(st.sampled_from(ring.engines))
        match stroke:
            case "ingest":
                data.draw(st.sampled_from(ring.ingests)).turn()
            case "scheduler":
                engine.scheduler.turn()
            case "executor":
                engine.turn_executor()
            case "output":
                data.draw(st.sampled_from(ring.outputs)).run()
            case "submit":
                prompt = data.draw(st.lists(st.integers(17, 20), min_size=1, max_size=30))
                ingest = data.draw(st.integers(0, ingests - 1))
                requests.append((ring.submit(prompt, ingest, max_tokens=20), prompt, ingest))
            case "leave" if requests:
                request, _, ingest = data.draw(st.sampled_from(requests))
                left.add(request)
                ring.ingests[ingest].table.abandon(request)
    ring.run()
    for request, prompt, _ in requests:
        if request not in left:
            check_answer(request, prompt, 20)
