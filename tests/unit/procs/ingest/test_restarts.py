"""Whoever dies behind ingest, and whenever: clients get what they would have got had nobody died."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fourstroke.common.types import Finish
from fourstroke.ipc.messages import NO_LOGPROBS, Limits, Sampling
from fourstroke.procs.ingest.live import Choice, LiveRequest
from fourstroke.procs.ingest.table import PATIENCE_S

from .dying import World, answer, token
from .surroundings import text


class Client:
    """A request and what has been read of its answer, choice by choice."""

    def __init__(
        self,
        world: World,
        name: str,
        *,
        n: int = 1,
        most: int = 8,
        stop: str = "",
        echo: bool = False,
        prompt: int = 5,
        deadline_s: float = math.inf,
    ) -> None:
        self.world = world
        self.request = LiveRequest(name, (stop,) if stop else (), False, True, deadline_s=deadline_s)
        self.most, self.stop, self.echo = most, stop, echo
        tokens = np.arange(prompt, dtype=np.int32)
        sampling = Sampling(0.0, 0, 1.0, 0.0, logprobs=0, prompt_logprobs=0 if echo else NO_LOGPROBS)
        for index in range(n):
            rid = world.table.new_rid()
            seed = 100 * len(name) + 31 * index
            limits = Limits(most, 0, False, ())
            self.request.choices.append(Choice(self.request, rid, seed, index, 0, tokens, b"", sampling, limits))
        self.texts, self.scored = [""] * n, [list[int]() for _ in range(n)]
        world.table.open(self.request)

    def read(self) -> None:
        """Take the news that are there."""
        if not any(choice.in_mail for choice in self.request.choices):
            return
        for news in asyncio.run(self.request.news()):
            self.texts[news.choice.index] += news.delta
            for ids, words in news.tokens:
                assert words is not None and words[:, 0].tolist() == ids.tolist()
                self.scored[news.choice.index] += ids.tolist()

    def check(self) -> None:
        """It has been given exactly what it would have been given had nobody died."""
        self.read()
        for choice in self.request.choices:
            text, tokens, finish, stop = answer(choice.seed, self.most, self.stop)
            assert self.texts[choice.index] == text
            assert self.scored[choice.index] == tokens
            assert np.frombuffer(choice.generated, np.int32).tolist() == tokens
            assert choice.ending is not None
            assert (choice.ending.finish, choice.ending.stop_string) == (finish, stop)
            assert choice.ending.tokens == len(tokens)
            assert choice.cached_tokens == 5
            if self.echo:
                prompt_words = [word for words in choice.prompt_words for word in words[:, 0].tolist()]
                assert prompt_words == choice.prompt[1:].tolist()

    @property
    def ends(self) -> list[Finish | None]:
        return [choice.ending and choice.ending.finish for choice in self.request.choices]


AT = st.integers(0, 1)
MOST = st.integers(1, 3)
ACTIONS = st.one_of(
    st.tuples(st.just("ask"), st.integers(1, 3), st.integers(1, 12), st.sampled_from(["", "ab", "ba", "cdc"])),
    st.tuples(st.just("echo"), st.integers(1, 2), st.integers(1, 9)),
    st.tuples(st.just("step"), AT),
    st.tuples(st.just("speak"), AT, MOST),
    st.tuples(st.just("hear"), AT, MOST),
    st.tuples(st.just("read"), st.integers(0, 9)),
    st.tuples(st.sampled_from(["kill engine", "kill output", "replace engine", "replace output"]), AT),
    st.tuples(st.just("turn")),
)


def act(world: World, clients: list[Client], action: tuple[object, ...]) -> None:
    """Do one of ACTIONS."""
    name, *rest = action
    known: dict[object, Callable[..., object]] = {
        "ask": lambda n, most, stop: clients.append(Client(world, "r" * (1 + len(clients)), n=n, most=most, stop=stop)),
        "echo": lambda n, prompt: clients.append(
            Client(world, "r" * (1 + len(clients)), n=n, echo=True, prompt=prompt)
        ),
        "step": lambda at: world.step(at % len(world.engines)),
        "speak": lambda at, most: world.speak(at % len(world.outputs), most),
        "hear": lambda at, most: world.hear(at % len(world.outputs), most),
        "read": lambda at: clients[at % len(clients)].read() if clients else None,
        "kill engine": lambda at: world.kill_engine(at % len(world.engines)),
        "kill output": lambda at: world.kill_output(at % len(world.outputs)),
        "replace engine": lambda at: world.replace_engine(at % len(world.engines)),
        "replace output": lambda at: world.replace_output(at % len(world.outputs)),
        "turn": world.turn,
    }
    known[name](*rest)


@settings(deadline=None)
@given(st.integers(1, 2), st.integers(1, 2), st.lists(ACTIONS, max_size=60))
def test_answers_do_not_depend_on_deaths(engines: int, outputs: int, actions: list[tuple[object, ...]]) -> None:
    """Engines and outputs die and are replaced at any point, with their messages half read: texts, tokens, their
    log-probabilities and the prompt's, usage and ends are those of a run in which nobody dies, and no work is left
    in the books.
    """
    world, clients = World(engines, outputs), list[Client]()
    for action in actions:
        act(world, clients, action)
    world.finish()
    world.turn()
    for client in clients:
        client.check()
    assert world.router.work == (0,) * engines
    assert not any(engine.requests for engine in world.engines)


@pytest.mark.parametrize("dies", ["engine", "output"])
def test_a_prompt_is_computed_once_for_its_choices(dies: str) -> None:
    """Choices that have no token yet are handed over together again; others alone, with their tokens."""
    world = World()
    begun, fresh = Client(world, "begun", n=2), Client(world, "fresh", n=3)
    world.step(0)
    world.speak(0, most=2)
    world.hear(0)
    first = list(world.engines[0].heard)
    world.kill_engine(0) if dies == "engine" else world.kill_output(0)
    world.heal()
    world.beat()
    world.step(0)
    again = world.engines[0].heard[len(first) :]
    assert len(first) == len(again) == 5
    assert list(world.engines[0].requests) == again, "the old ones have ended"
    assert not set(first) & set(again)
    submits = {id(world.engines[0].requests[rid].submit) for rid in again}
    assert len(submits) == 3
    world.finish()
    begun.check()
    fresh.check()


@pytest.mark.parametrize("dies", ["engine", "output"])
def test_order_of_arrival(dies: str) -> None:
    """What was handed over before goes first again, and then what still waited for room, each once."""
    world = World()
    clients = [Client(world, "r" * number, prompt=20) for number in range(1, 7)]
    world.step(0)
    asked = [client.request.choices[0].rid for client in clients]
    assert world.engines[0].heard == asked[:3], "three prompts fit into the ring"
    world.kill_engine(0) if dies == "engine" else world.kill_output(0)
    world.heal()
    world.beat()
    now = [client.request.choices[0].rid for client in clients]
    world.engines[0].heard.clear()
    for _ in range(4):
        world.turn()
    assert world.engines[0].heard == now
    assert not set(now[:3]) & set(asked[:3])
    assert now[3:] == asked[3:], "what nobody had heard of is not handed over again"
    world.finish()
    for client in clients:
        client.check()


@pytest.mark.parametrize("steps", range(5))
def test_log_probabilities_of_prompts(steps: int) -> None:
    """Those that came in part are asked for again; when all have come, nobody is asked, and tokens come at once."""
    world = World()
    client = Client(world, "r", echo=True, prompt=8, n=2)
    for _ in range(steps):
        world.turn()
    asked = [choice.sampling.prompt_logprobs for choice in client.request.choices]
    world.kill_engine(0)
    world.heal()
    world.beat()
    now = [choice.sampling.prompt_logprobs for choice in client.request.choices]
    assert asked == [0, 0]
    assert now == [NO_LOGPROBS if steps == 4 else 0] * 2, "two of seven come with each step"
    world.finish()
    client.check()


def test_a_text_from_the_next_life() -> None:
    """What a new output says of an old id may lack what the one before was told: it is not taken for more text."""
    world = World()
    client = Client(world, "r")
    world.turn()
    rid = client.request.choices[0].rid
    world.kill_output(0)
    world.heal()
    world.table.deliver(text((rid, "gap", 1)))
    world.finish()
    client.check()


def test_other_engines_are_preferred_while_one_is_away() -> None:
    """A prompt goes to an engine that works, though it has more to do; but not if that has very much more."""
    world = World(engines=2)
    world.kill_engine(0)
    for number in range(1, 5):
        Client(world, "r" * number)
    world.turn()
    assert (len(world.engines[0].heard), len(world.engines[1].heard)) == (0, 4)
    for number in range(5, 200):
        Client(world, "r" * number, most=1000)
    assert world.router.work[0] > 0
    world.heal()


def test_a_client_that_leaves_meanwhile() -> None:
    """Nobody hears of its request again."""
    world = World()
    client = Client(world, "r")
    world.step(0)
    world.kill_engine(0)
    world.table.abandon(client.request)
    heard = len(world.engines[0].heard)
    world.heal()
    for _ in range(3):
        world.turn()
    assert len(world.engines[0].heard) == heard
    assert (len(world.table), world.router.work) == (0, (0,))


@pytest.mark.parametrize("dies", ["engine", "output"])
@pytest.mark.parametrize("replaced", [False, True])
def test_an_abort_meanwhile(dies: str, replaced: bool) -> None:
    """Its answer ends with the text that there is: when the dead are replaced, or when nobody has said so for long."""
    world = World()
    client = Client(world, "r", n=2)
    world.turn()
    world.turn()
    world.kill_engine(0) if dies == "engine" else world.kill_output(0)
    assert world.table.abort("r")
    if replaced:
        world.heal()
    else:
        world.beat()
        assert client.ends == [None, None]
        world.now_s += PATIENCE_S
    world.beat()
    assert client.ends == [Finish.ABORT] * 2
    client.read()
    for choice in client.request.choices:
        assert client.texts[choice.index] == "".join(chr(token(choice.seed, at)) for at in range(2))
        assert choice.ending is not None and choice.ending.tokens == 2
    heard = len(world.engines[0].heard)
    world.heal()
    world.turn()
    assert len(world.engines[0].heard) == heard


def test_time_is_up_meanwhile() -> None:
    """A request has its time, and no more, also while there is nobody who could end it."""
    world = World()
    client, other = Client(world, "r", deadline_s=10.0), Client(world, "rr")
    world.turn()
    world.kill_engine(0)
    world.now_s = 10.0
    world.beat()
    assert client.ends == [None]
    world.now_s += PATIENCE_S
    world.beat()
    assert (client.ends, other.ends) == ([Finish.TIMEOUT], [None])
    assert client.request.choices[0].ending is not None and client.request.choices[0].ending.tokens == 1
    world.finish()
    other.check()


def test_time_is_up_before_it_is_handed_over_again() -> None:
    """What is too late by then is not computed again."""
    world = World()
    client = Client(world, "r", deadline_s=10.0)
    world.turn()
    world.kill_engine(0)
    world.now_s = 10.5
    world.heal()
    heard = len(world.engines[0].heard)
    world.beat()
    world.turn()
    assert client.ends == [Finish.TIMEOUT]
    assert len(world.engines[0].heard) == heard


@pytest.mark.parametrize("dies", ["engine", "output"])
@pytest.mark.parametrize("when", ["asked", "answered"])
def test_a_reset_of_the_cache(dies: str, when: str) -> None:
    """An answer that was lost, or a question, is asked for again; whoever waits does not notice."""

    async def run() -> Finish:
        world = World(engines=2, outputs=2)
        reset = asyncio.create_task(world.table.reset_cache(False))
        await asyncio.sleep(0)
        if when == "answered":
            world.step(0)
            world.step(1)
        for at in range(2):
            world.kill_engine(at) if dies == "engine" else world.kill_output(at)
        world.heal()
        for _ in range(2):
            world.turn()
        assert not world.table.busy
        return (await reset).finish

    assert asyncio.run(asyncio.wait_for(run(), 10)) is Finish.STOP
