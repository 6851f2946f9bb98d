"""The table of live requests: news reach their reader, ends reach the engine, and the books are empty in the end."""

import asyncio
from collections.abc import Collection, Iterator, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fourstroke.common.errors import BadMessage
from fourstroke.common.types import Finish
from fourstroke.ipc.messages import Limits, Sampling, Text
from fourstroke.procs.ingest.errors import Refusal, stopping
from fourstroke.procs.ingest.live import Choice, LiveRequest, News
from fourstroke.procs.ingest.lives import Replaced
from fourstroke.procs.ingest.table import Table

from .surroundings import ending, text


class Engine:
    """Writes down what it is told. Choices in `unsent` never reached the scheduler."""

    def __init__(self, engines: int = 1) -> None:
        self.engines = engines
        self.ended_rids: list[int] = []
        self.submitted: list[list[int]] = []
        self.resets: list[tuple[int, bool]] = []
        self.aborted: list[tuple[int, Finish, int]] = []
        self.unsent: set[int] = set()

    def submit(self, choices: list[Choice]) -> None:
        self.submitted.append([choice.rid for choice in choices])

    def ended(self, choice: Choice) -> None:
        assert choice.rid not in self.ended_rids, "a choice ended twice"
        self.ended_rids.append(choice.rid)

    def reset_cache(self, engine: int, rid: int, force: bool) -> None:
        self.resets.append((rid, force))

    def lost(self, replaced: Replaced) -> Collection[int]:
        raise AssertionError("nobody has died")

    def resubmit(self, submissions: Sequence[list[Choice]]) -> None:
        raise AssertionError("nothing was lost")

    def abort(self, choice: Choice, reason: Finish, keep: int) -> bool:
        assert choice.rid not in self.ended_rids, "the engine may have forgotten it"
        self.aborted.append((choice.rid, reason, keep))
        return choice.rid not in self.unsent


def opened(choices: int = 1, capacity: int = 10) -> tuple[Engine, Table, LiveRequest]:
    """A table with one request, whose choices have the ids 1, 2, ... and of which every two are of one prompt."""
    engine = Engine()
    table = Table(engine, 1, capacity)
    request = LiveRequest("r", (), False, True)
    for index in range(choices):
        prompt = np.zeros(3, np.int32)
        sampling, limits = Sampling(0, 0, 1, 0), Limits(9, 0, False, ())
        request.choices.append(Choice(request, table.new_rid(), 0, index, index // 2, prompt, b"", sampling, limits))
    table.open(request)
    return engine, table, request


def read(request: LiveRequest) -> list[tuple[int, str, Finish | None]]:
    """The news that are there."""
    news: list[News] = asyncio.run(asyncio.wait_for(request.news(), 10))
    return [(one.choice.index, one.delta, one.ending and one.ending.finish) for one in news]


def test_choices_go_by_prompt() -> None:
    """The engine is given the choices of a prompt together, prompt after prompt."""
    engine, _, _ = opened(5)
    assert engine.submitted == [[1, 2], [3, 4], [5]]


def test_deltas_merge_while_nobody_reads() -> None:
    """What comes while the client is slow is one piece of news for each choice, in the order of their first."""
    _, table, request = opened(2)
    table.deliver(text((2, "b", 1), (1, "x", 1)))
    table.deliver(text((1, "y", 2), endings=(ending(1, Finish.LENGTH, 3),)))
    assert read(request) == [(1, "b", None), (0, "xy", Finish.LENGTH)]
    table.deliver(text((2, "c", 1)))
    assert read(request) == [(1, "c", None)]


@given(st.lists(st.tuples(st.integers(1, 3), st.text(max_size=3), st.integers(0, 3), st.booleans()), max_size=30))
def test_nothing_is_lost(rows: list[tuple[int, str, int, bool]]) -> None:
    """However deltas and readings mix: the joined news of a choice are its joined deltas, its ids all its ids."""
    _, table, request = opened(3)
    found, expected, tokens = dict.fromkeys((0, 1, 2), ""), dict.fromkeys((0, 1, 2), ""), [0, 0, 0]

    def take() -> Iterator[None]:
        for index, delta, _ in read(request):
            found[index] += delta
            yield

    for rid, delta, count, reads in rows:
        table.deliver(text((rid, delta, count)))
        expected[rid - 1] += delta
        tokens[rid - 1] += count
        if reads and expected != found:
            list(take())
    if expected != found:
        list(take())
    assert found == expected
    assert [len(choice.generated) for choice in request.choices] == [4 * count for count in tokens]
    assert [choice.read_chars for choice in request.choices] == [len(expected[index]) for index in range(3)]


def test_empty_deltas_are_no_news() -> None:
    """A row whose text is held back wakes nobody, but its ids are kept."""
    _, table, request = opened()
    table.deliver(text((1, "", 2)))
    assert len(request.choices[0].generated) == 8
    table.deliver(text((1, "x", 1)))
    assert read(request) == [(0, "x", None)]


def test_stop_string() -> None:
    """A stop string found by output ends the choice in the scheduler too, which may be further on."""
    engine, table, _ = opened(2)
    table.deliver(text(endings=(ending(1, Finish.STOP, 4, stop_string="x"), ending(2, Finish.STOP, 4, stop_token=5))))
    assert engine.aborted == [(1, Finish.STOP, 4)]
    assert len(table) == 0


def test_news_of_unknown_requests() -> None:
    """Text of a request that was taken back is passed over."""
    _, table, request = opened()
    table.deliver(text((77, "x", 1), (1, "y", 1), endings=(ending(77, Finish.LENGTH),)))
    assert read(request) == [(0, "y", None)]


@pytest.mark.parametrize(
    "message",
    [
        Text(b"", b"", ("x",), b"", ()),
        Text(bytes(8), bytes(8), ("x",), b"", ()),
        Text(bytes(8), bytes(4), ("x",), bytes(4), ()),
        Text(bytes(8), np.array([-1], np.int32).tobytes(), ("x",), b"", ()),
        Text(bytes(7), bytes(4), ("x",), b"", ()),
        Text(bytes(8), bytes(4), ("x",), b"", (), opened=bytes(8)),
        Text(bytes(8), bytes(4), ("x",), b"", (), opened=bytes(8), cached_tokens=bytes(5)),
    ],
)
def test_bad_texts(message: Text) -> None:
    """Columns that do not fit each other are a bad message, of which nothing is used."""
    _, table, request = opened()
    with pytest.raises(BadMessage):
        table.deliver(message)
    assert request.choices[0].mail == ""


def test_client_leaves() -> None:
    """All choices that still run are ended, at once and once, and the reader is told."""
    engine, table, request = opened(3)
    table.deliver(text(endings=(ending(2, Finish.LENGTH),)))
    table.abandon(request)
    table.close(request)
    assert engine.aborted == [(1, Finish.ABORT, 0), (3, Finish.ABORT, 0)]
    assert (read(request), len(table), table.busy) == ([], 0, False)


def test_reader_is_woken() -> None:
    """A reader that waits is woken by text, and by the client's leaving."""

    async def run() -> None:
        _, table, request = opened()
        reader = asyncio.create_task(request.news())
        await asyncio.sleep(0)
        table.deliver(text((1, "x", 1)))
        assert [news.delta for news in await reader] == ["x"]
        reader = asyncio.create_task(request.news())
        await asyncio.sleep(0)
        table.abandon(request)
        assert await reader == []

    asyncio.run(asyncio.wait_for(run(), 10))


def test_abort_by_id() -> None:
    """An abort asks the engine, whose ending comes as usual; what the engine never saw ends here."""
    engine, table, request = opened(2)
    engine.unsent = {2}
    assert not table.abort("other")
    assert table.abort("r")
    assert engine.aborted == [(1, Finish.ABORT, 0), (2, Finish.ABORT, 0)]
    assert read(request) == [(1, "", Finish.ABORT)]
    table.deliver(text((1, "x", 1), endings=(ending(1, Finish.ABORT),)))
    assert read(request) == [(0, "x", Finish.ABORT)]


def test_time_is_up() -> None:
    """Choices whose time was up before the engine saw them end as such; what ended otherwise meanwhile stays so."""
    engine, table, request = opened(3)
    table.deliver(text(endings=(ending(2, Finish.LENGTH),)))
    table.time_out(request.choices)
    assert read(request) == [(1, "", Finish.LENGTH), (0, "", Finish.TIMEOUT), (2, "", Finish.TIMEOUT)]
    assert (len(table), engine.aborted) == (0, [])


@pytest.mark.parametrize("force", [False, True])
def test_reset_of_the_cache(force: bool) -> None:
    """A reset is no choice; its answer is the ending of its id, and until it comes the table is not idle."""

    async def run() -> None:
        engine = Engine()
        table = Table(engine, 1, 1)
        resets = [asyncio.create_task(table.reset_cache(force)) for _ in range(2)]
        await asyncio.sleep(0)
        assert engine.resets == [(1, force), (2, force)]
        assert len(table) == 0
        table.reserve(1)
        table.release(1)
        idle: list[str] = []
        table.when_idle(lambda: idle.append("idle"))
        table.deliver(text(endings=(ending(2, Finish.REJECTED, detail="busy"),)))
        assert table.busy and not idle
        table.deliver(text(endings=(ending(1, Finish.STOP), ending(2, Finish.STOP))))
        assert [one.finish for one in await asyncio.gather(*resets)] == [Finish.STOP, Finish.REJECTED]
        assert (table.busy, idle, engine.aborted) == (False, ["idle"], [])

    asyncio.run(asyncio.wait_for(run(), 10))


@pytest.mark.parametrize("rejected", [set(), {2}, {1, 2, 3}])
def test_reset_of_several_engines(rejected: set[int]) -> None:
    """The answer comes when all engines have answered; one that refuses is enough for a refusal, with its words."""

    async def run() -> None:
        table = Table(Engine(3), 1, 10)
        reset = asyncio.create_task(table.reset_cache(False))
        await asyncio.sleep(0)
        for rid in (3, 1, 2):
            assert not reset.done() and table.busy
            finish = Finish.REJECTED if rid in rejected else Finish.STOP
            table.deliver(text(endings=(ending(rid, finish, detail=f"engine {rid}"),)))
        answer = await reset
        assert not table.busy
        assert answer.finish is (Finish.REJECTED if rejected else Finish.STOP)
        assert not rejected or answer.detail == f"engine {min(rejected)}"

    asyncio.run(asyncio.wait_for(run(), 10))


def test_reset_that_nobody_waits_for() -> None:
    """The answer to a client that has left is passed over, and so is the end of the process."""

    async def run() -> None:
        engine = Engine()
        table = Table(engine, 1, 1)
        for _ in range(2):
            reset = asyncio.create_task(table.reset_cache(False))
            await asyncio.sleep(0)
            reset.cancel()
        await asyncio.gather(reset, return_exceptions=True)
        table.deliver(text(endings=(ending(1, Finish.STOP),)))
        assert table.busy
        table.fail_all(stopping())
        assert not table.busy

    asyncio.run(asyncio.wait_for(run(), 10))


def test_reset_when_the_process_stops() -> None:
    """Who waits for a reset then hears why there is no answer, and so does who asks later."""

    async def run() -> None:
        engine = Engine()
        table = Table(engine, 1, 1)
        reset = asyncio.create_task(table.reset_cache(True))
        await asyncio.sleep(0)
        table.fail_all(stopping())
        for waiting in (reset, table.reset_cache(True)):
            with pytest.raises(Refusal, match="stopping"):
                await waiting
        assert (len(engine.resets), table.busy) == (1, False)

    asyncio.run(asyncio.wait_for(run(), 10))


def test_fail_all() -> None:
    """When the process stops, whoever waits for text hears why, also a request that was still being tokenised."""
    engine, table, request = opened(2)
    table.fail_all(stopping())
    with pytest.raises(Refusal, match="stopping"):
        read(request)
    assert engine.aborted == [(1, Finish.ABORT, 0), (2, Finish.ABORT, 0)]
    assert not table.busy
    with pytest.raises(Refusal, match="stopping"):
        table.open(request)
    assert not table.busy


def test_fail_all_leaves_what_is_complete() -> None:
    """A request whose text is all there, and only has to be sent, still is."""
    engine, table, request = opened(2)
    table.deliver(text((1, "x", 1), (2, "y", 1), endings=(ending(1, Finish.STOP), ending(2, Finish.STOP))))
    table.fail_all(stopping())
    assert read(request) == [(0, "x", Finish.STOP), (1, "y", Finish.STOP)]
    assert engine.aborted == []


def test_capacity() -> None:
    """Live choices and those being tokenised count; what is too much is a 429 that says when to come back."""
    _, table, request = opened(3, capacity=6)
    table.reserve(2)
    with pytest.raises(Refusal) as raised:
        table.reserve(2)
    assert raised.value.status == 429
    assert "Retry-After" in dict(raised.value.headers)
    table.release(2)
    table.reserve(3)
    table.release(3)
    table.abandon(request)
    table.reserve(6)


def test_when_idle() -> None:
    """Idle is when the last request's last byte was sent, not when its last token came; it is told once."""
    _, table, request = opened()
    told: list[str] = []
    table.when_idle(lambda: told.append("first"))
    table.deliver(text(endings=(ending(1, Finish.LENGTH),)))
    table.reserve(1)
    assert not told
    table.close(request)
    assert not told
    table.release(1)
    assert told == ["first"]
    table.close(request)
    table.when_idle(lambda: told.append("second"))
    assert told == ["first", "second"]
