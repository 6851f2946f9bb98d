"""Where prompts go: nothing is lost, the work is shared, and a prefix comes back to the engine that has it."""

from __future__ import annotations

import itertools
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fourstroke.common.types import Finish
from fourstroke.ipc.block_hash import chain
from fourstroke.ipc.loads import Loads, loads_bytes
from fourstroke.ipc.messages import CacheKeys, Limits, Sampling
from fourstroke.procs.ingest.live import Choice, LiveRequest
from fourstroke.procs.ingest.lives import Replaced
from fourstroke.procs.ingest.router import AWAY_TOKENS, EXPECTED_TOKENS, Router
from fourstroke.procs.ingest.submit import Submitter

BLOCK = 16
RIDS = itertools.count(1)


class Way:
    """What the router uses of a Submitter. Choices in `late` have waited here for too long."""

    def __init__(self, capacity: int = 1000, ring_tokens: int = 0) -> None:
        self.prompt_capacity = capacity
        self.ring_tokens = ring_tokens
        self.submitted: list[list[Choice]] = []
        self.aborted: list[Choice] = []
        self.resets: list[tuple[int, bool]] = []
        self.late: list[Choice] = []
        self.unsent: set[int] = set()

    def submit(self, choices: list[Choice]) -> None:
        self.submitted.append(choices)

    def resubmit(self, submissions: list[list[Choice]]) -> None:
        self.submitted += submissions

    @property
    def waiting(self) -> frozenset[int]:
        return frozenset(self.unsent)

    def abort(self, choice: Choice, reason: Finish, keep: int) -> bool:
        self.aborted.append(choice)
        return choice.rid not in self.unsent

    def reset_cache(self, rid: int, force: bool) -> None:
        self.resets.append((rid, force))

    def retry(self) -> list[Choice]:
        return self.late


class World:
    """A router over ways that are looked at."""

    def __init__(self, engines: int = 2, **options: Any) -> None:
        self.ways = [Way() for _ in range(engines)]
        self.router = Router(cast("list[Submitter]", self.ways), **options)

    def submit(self, prompt: list[int], max_tokens: int = 100, n: int = 1, cached: bool = True) -> list[Choice]:
        tokens = np.array(prompt, np.int32)
        digests = chain(tokens, BLOCK, CacheKeys(), ()) if cached else b""
        request = LiveRequest("r", (), False, True)
        sampling, limits = Sampling(0, 0, 1, 0), Limits(max_tokens, 0, False, ())
        choices = [Choice(request, next(RIDS), 0, number, 0, tokens, digests, sampling, limits) for number in range(n)]
        self.router.submit(choices)
        return choices

    def engine_of(self, choices: list[Choice]) -> int:
        (engine,) = [number for number, way in enumerate(self.ways) if choices in way.submitted]
        return engine

    def place(self, prompt: list[int], **fields: Any) -> int:
        return self.engine_of(self.submit(prompt, **fields))

    def end(self, choices: list[Choice]) -> None:
        for choice in choices:
            self.router.ended(choice)


def prompt_of(first: int, blocks: int) -> list[int]:
    """A prompt of full blocks which shares none with one of another beginning."""
    return [first] + [7] * (BLOCK * blocks - 1)


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), st.integers(1, 4), st.integers(1, 40), st.integers(1, 1000), st.integers(1, 3)),
        st.tuples(st.just("end"), st.integers(0, 100)),
    ),
    max_size=60,
)


@given(st.integers(1, 4), OPERATIONS)
def test_every_prompt_goes_to_one_engine_and_the_books_are_empty_in_the_end(
    engines: int, operations: list[Any]
) -> None:
    """All choices of a prompt arrive together, exactly once; work is counted until it ends, and none is left."""
    world, live, submitted = World(engines), [], 0
    for operation in operations:
        if operation[0] == "submit":
            _, first, blocks, max_tokens, n = operation
            live.append(world.submit(prompt_of(first, blocks), max_tokens, n))
            submitted += 1
            assert world.engine_of(live[-1]) in range(engines)
        elif live:
            world.end(live.pop(operation[1] % len(live)))
        expected = sum(
            len(choices[0].prompt) + sum(min(choice.limits.max_tokens, EXPECTED_TOKENS) for choice in choices)
            for choices in live
        )
        assert sum(world.router.work) == expected
    assert sum(len(way.submitted) for way in world.ways) == submitted
    for choices in live:
        world.end(choices)
    assert world.router.work == (0,) * engines


@given(st.integers(2, 4), OPERATIONS)
def test_nobody_waits_longer_for_affinity_than_it_saves(engines: int, operations: list[Any]) -> None:
    """The chosen engine is ahead of the least busy by no more than the prompt's own full blocks."""
    world, live = World(engines), []
    for operation in operations:
        if operation[0] == "submit":
            _, first, blocks, max_tokens, n = operation
            before = world.router.work
            live.append(world.submit(prompt_of(first, blocks), max_tokens, n))
            assert before[world.engine_of(live[-1])] - min(before) <= BLOCK * blocks
        elif live:
            world.end(live.pop(operation[1] % len(live)))


@given(st.integers(2, 4), st.lists(st.tuples(st.integers(1, 300), st.integers(1, 600)), max_size=50))
def test_balance(engines: int, prompts: list[tuple[int, int]]) -> None:
    """Without affinity no engine is further ahead of another than the largest single prompt."""
    world = World(engines)
    largest = 0
    for length, max_tokens in prompts:
        world.submit([5] * length, max_tokens, cached=False)
        largest = max(largest, length + min(max_tokens, EXPECTED_TOKENS))
        assert max(world.router.work) - min(world.router.work) <= largest


def test_equals_take_turns() -> None:
    """One request after the other, each when the one before has ended: all engines are used alike."""
    world = World(3)
    for number in range(9):
        world.end(world.submit(prompt_of(number, 2)))
    assert [len(way.submitted) for way in world.ways] == [3, 3, 3]


@pytest.mark.parametrize("blocks", [1, 2, 3, 7, 8, 100])
def test_a_prefix_comes_back_to_its_engine(blocks: int) -> None:
    """A prompt that begins like an earlier one goes where that was, though another engine has had fewer prompts."""
    world = World(2)
    prompt = prompt_of(1, blocks)
    home = world.submit(prompt)
    world.end(home)
    for number in range(5):
        again = world.submit(prompt + [50 + number] * 40)
        assert world.engine_of(again) == world.engine_of(home)
        world.end(again)


def test_affinity_gives_way() -> None:
    """It holds while the engine is ahead by less than the prefix saves, and no longer."""
    world = World(2)
    prompt = prompt_of(1, 16)
    home = world.place(prompt, max_tokens=1)
    assert world.place([5, 5], max_tokens=1) != home
    assert world.router.work[home] - min(world.router.work) == len(prompt) - 2
    assert world.place(prompt, max_tokens=1) == home
    assert world.place(prompt, max_tokens=1) != home


def test_the_deepest_prefix_decides() -> None:
    """Two engines share a first block; a prompt goes to the one that has more of it."""
    world = World(2)
    system = prompt_of(1, 1)
    first = world.submit(system + [10] * 15 * BLOCK)
    second = world.submit(system + [20] * 15 * BLOCK)
    assert world.engine_of(first) != world.engine_of(second)
    world.end(first + second)
    for known, rest in ((first, 10), (second, 20)):
        again = world.submit(system + [rest] * 15 * BLOCK)
        assert world.engine_of(again) == world.engine_of(known)
        world.end(again)


def test_old_prefixes_are_forgotten() -> None:
    """The memory of prefixes is bounded; the least recently seen go first."""
    world = World(2, max_prefixes=2)
    homes = {}
    for number in (1, 2):
        choices = world.submit(prompt_of(number, 1))
        homes[number] = world.engine_of(choices)
        world.end(choices)
    world.end(world.submit(prompt_of(1, 1)))
    world.end(world.submit(prompt_of(3, 1)))  # 2 goes
    assert set(world.router._homes._engines.values()) <= {0, 1}
    assert len(world.router._homes._engines) == 2
    assert world.place(prompt_of(1, 1)) == homes[1]


def test_an_abort_goes_where_the_choice_is() -> None:
    """To no other engine, and its answer is that engine's."""
    world = World(2)
    here, there = world.submit([1] * 5, n=2), world.submit([2] * 5)
    world.ways[0].unsent = {here[1].rid}
    assert world.router.abort(here[0], Finish.ABORT, 0)
    assert not world.router.abort(here[1], Finish.ABORT, 0)
    assert world.router.abort(there[0], Finish.STOP, 3)
    assert [way.aborted for way in world.ways] == [here, there]


def test_a_reset_goes_to_all() -> None:
    """Each engine gets an id of its own to answer to; prefixes have no home then."""
    world = World(3)
    prompt = prompt_of(1, 4)
    world.end(world.submit(prompt))
    assert world.router.engines == 3
    for engine in range(3):
        world.router.reset_cache(engine, 5 + engine, True)
    assert [way.resets for way in world.ways] == [[(5, True)], [(6, True)], [(7, True)]]
    assert world.place(prompt) == 1


def test_what_was_lost() -> None:
    """All choices of an engine that was replaced, and those of an output on any engine, but what still waits here."""
    world = World(2)
    here, there = world.submit([1] * 5, n=4), world.submit([2] * 5, n=4)
    world.ways[0].unsent = {here[0].rid}
    engine = world.router.lost(Replaced(frozenset({0}), frozenset(), 2))
    assert engine == {choice.rid for choice in here[1:]}
    output = world.router.lost(Replaced(frozenset(), frozenset({1}), 2))
    assert output == {choice.rid for choice in here[1:] + there if choice.rid % 2 == 1}


@pytest.mark.parametrize("replaced", [0, 1])
def test_an_engine_that_was_replaced_has_no_prefixes(replaced: int) -> None:
    """What it had computed may go anywhere; what the other engine has computed still comes home."""
    world = World(2)
    prompt = prompt_of(1, 8)
    world.end(world.submit(prompt))
    assert [world.place([5] * 9, cached=False) for _ in range(2)] == [1, 0], "now they have equal work"
    world.router.lost(Replaced(frozenset({replaced}), frozenset(), 1))
    assert world.place(prompt) == 1 - replaced


def test_work_that_is_left() -> None:
    """A choice that is handed over again counts as what it has still to do, in one place."""
    world = World(2)
    (choice,) = choices = world.submit([1] * 5, max_tokens=10)
    assert sum(world.router.work) == 15
    world.router.ended(choice)
    choice.add(np.zeros(4, np.int32).tobytes(), None)
    world.router.resubmit([choices])
    assert sorted(world.router.work) == [0, 5 + 4 + 6]
    world.router.ended(choice)
    assert world.router.work == (0, 0)


def test_an_engine_that_is_away() -> None:
    """Prompts go to another one, until that is behind by what a restart costs."""
    world = World(2, ready=lambda engine: engine == 1)
    placed = [world.place([1] * 1000, max_tokens=1, cached=False) for _ in range(40)]
    assert placed[: AWAY_TOKENS // 1001] == [1] * (AWAY_TOKENS // 1001)
    assert 0 in placed


def test_sums_over_the_engines() -> None:
    """Ring tokens are added up, the longest prompt is what every engine can take, late choices come from all."""
    world = World(2)
    world.ways[0].prompt_capacity, world.ways[0].ring_tokens, world.ways[1].ring_tokens = 10, 3, 4
    late = world.submit([1]), world.submit([2])
    world.ways[0].late, world.ways[1].late = late
    assert (world.router.prompt_capacity, world.router.ring_tokens) == (10, 7)
    assert world.router.retry() == [*late[0], *late[1]]


def test_work_of_other_ingests_counts() -> None:
    """Routers of several ingests see each other's work: the next prompt goes where the sum of all is least."""
    memory = bytearray(loads_bytes(2, 2))
    first, second = (World(2, loads=Loads(memory, 2, 2, own)) for own in range(2))
    big = first.submit([1] * 900, cached=False)
    assert first.engine_of(big) == 0
    assert [second.place([2] * 90, cached=False) for _ in range(3)] == [1, 1, 1]
    assert first.router.work == second.router.work
    first.end(big)
    assert second.place([3] * 90, cached=False) == 0


def test_ingests_begin_with_different_engines() -> None:
    """While all engines are idle each ingest prefers another one: their first prompts do not meet."""
    assert [World(3, first=own).place([1] * 9, cached=False) for own in range(4)] == [0, 1, 2, 0]
