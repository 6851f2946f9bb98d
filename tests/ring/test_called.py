"""What a scheduler owes to the others of its group: an answer in every turn, and no tick without a reason."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import pytest

from fourstroke.procs.process import RETRY_MS
from fourstroke.procs.scheduler.align.gate import Gate
from fourstroke.procs.scheduler.align.readiness import Readiness, Rule
from fourstroke.procs.scheduler.main import Rank

from .ring import Ring, check_answer


class Group:
    """A rank and a gate that tests direct. `called` stays until the gate was asked, as it does for a real rank."""

    size = 2
    generation = 1

    def __init__(self) -> None:
        self.called = False
        self.answer = True
        self.views: list[Readiness] = []
        self.left = False
        self.last = Rule.OPEN
        self.fired: Counter[Rule] = Counter()
        self.errors = 0

    def join(self) -> tuple[Rank, Gate]:
        return self, self

    def is_called(self) -> bool:
        return self.called

    def close(self) -> None:
        self.left = True

    def sum(self, values: Sequence[float]) -> list[float]:
        raise AssertionError("the gate does this")

    def max(self, values: Sequence[float]) -> list[float]:
        raise AssertionError("the gate does this")

    def allow(self, view: Readiness, now: float) -> bool:
        self.views.append(view)
        self.called = False
        self.last = Rule.READY if self.answer else Rule.MIXED
        return self.answer


@pytest.fixture
def group() -> Group:
    return Group()


def ring_of(group: Group, **options: object) -> Ring:
    ring = Ring(join=group.join, **options)  # type: ignore[arg-type]
    ring.turn()
    assert ring.scheduler.core is not None
    return ring


def asked(group: Group, ring: Ring) -> list[Readiness]:
    """The views that a turn of the scheduler has told the group."""
    group.views.clear()
    ring.scheduler.turn()
    return group.views


def test_an_idle_rank_begins_no_tick(group: Group) -> None:
    """Turns without work ask nothing; but a call is answered, at once and once, with empty queues."""
    ring = ring_of(group)
    assert [asked(group, ring) for _ in range(5)] == [[]] * 5
    group.called = True
    (view,) = asked(group, ring)
    assert (view.prefillable, view.running_decodes) == (False, 0)
    assert asked(group, ring) == []


def test_it_is_quiet_after_its_work(group: Group) -> None:
    """When its requests have ended there are no more ticks of its own."""
    ring = ring_of(group)
    request = ring.submit([20, 21, 22], max_tokens=9)
    ring.run()
    check_answer(request, [20, 21, 22], 9)
    assert group.views
    assert asked(group, ring) == []


def test_a_call_is_answered_with_full_slots(group: Group) -> None:
    """A rank whose pipeline is full plans nothing, and answers all the same."""
    ring = ring_of(group)
    request = ring.submit([20, 21, 22], max_tokens=9)
    for _ in range(3):
        ring.scheduler.turn()
    assert asked(group, ring) == []
    for _ in range(3):
        group.called = True
        assert len(asked(group, ring)) == 1
    ring.run()
    check_answer(request, [20, 21, 22], 9)


def test_a_call_is_answered_while_output_is_behind(group: Group) -> None:
    """Output that takes nothing stops the planning and not the answers."""
    ring = ring_of(group, token_ring=16)
    requests = [ring.submit([20 + number], max_tokens=60) for number in range(8)]
    for _ in range(300):
        ring.turn_ingest()
        ring.scheduler.turn()
        ring.turn_executor()
    assert ring.scheduler.output_is_behind
    assert asked(group, ring) == []
    group.called = True
    assert len(asked(group, ring)) == 1
    ring.run()
    for number, request in enumerate(requests):
        check_answer(request, [20 + number], 60)


def full_with_a_prompt_waiting(group: Group) -> Ring:
    """A rank with two steps open and a prompt that none of them holds."""
    ring = ring_of(group)
    ring.submit([20, 21, 22], max_tokens=60)
    for _ in range(3):
        ring.scheduler.turn()
    ring.submit([30, 31, 32], max_tokens=60)
    assert asked(group, ring) == []
    return ring


def prompt_tokens(ring: Ring) -> int:
    core = ring.scheduler.core
    assert core is not None
    return core.statistics.prompt_tokens


@pytest.mark.parametrize("allowed", [True, False])
def test_what_was_allowed_is_done_by_the_next_plan(group: Group, allowed: bool) -> None:
    """The others prefill now; this rank does when its slots are free, whatever the next tick would say."""
    ring = full_with_a_prompt_waiting(group)
    group.called, group.answer = True, allowed
    (view,) = asked(group, ring)
    assert view.prefillable
    group.answer = False
    before = prompt_tokens(ring)
    ring.turn_executor()
    views = asked(group, ring)
    assert (prompt_tokens(ring) > before) == allowed
    assert len(views) == (1 if allowed else 2)  # two slots are free, and each plan has a tick, or one that was kept


def test_an_answer_for_nothing_is_not_kept(group: Group) -> None:
    """What was allowed to a rank without prefills does not count when it has one."""
    ring = ring_of(group)
    group.called = True
    assert len(asked(group, ring)) == 1
    group.answer = False
    ring.submit([20, 21, 22])
    assert len(asked(group, ring)) == 1
    assert prompt_tokens(ring) == 0


def test_a_rank_that_is_held_asks_again_soon(group: Group) -> None:
    """With nothing open no result will come to wake it; with a step open one will, and an idle rank sleeps on."""
    ring = ring_of(group)
    assert ring.scheduler.wait_s(math.inf) == math.inf
    group.answer = False
    ring.submit([20, 21, 22], max_tokens=9)
    for _ in range(5):
        assert len(asked(group, ring)) == 1
        assert ring.scheduler.wait_s(math.inf) == RETRY_MS / 1000
    group.answer = True
    ring.scheduler.turn()
    assert ring.scheduler.wait_s(math.inf) == math.inf
    ring.run()


def test_texts_do_not_depend_on_the_gate(group: Group) -> None:
    """Held now and then, called now and then: the same texts."""
    ring = ring_of(group, budget=16)
    prompts = [[20 + number] * (3 + 5 * number) for number in range(8)]
    requests = [ring.submit(prompt, max_tokens=30) for prompt in prompts]
    for turn in range(100):
        group.called, group.answer = turn % 3 == 0, turn % 4 == 0
        ring.turn()
    group.answer = True
    ring.run()
    for request, prompt in zip(requests, prompts, strict=True):
        check_answer(request, prompt, 30)


def test_it_leaves_the_group(group: Group) -> None:
    """A loop that ends has the others go on without it; one that never entered has nothing to leave."""
    ring = ring_of(group)
    assert not group.left
    ring.scheduler.close()
    assert group.left
    Ring().scheduler.close()
