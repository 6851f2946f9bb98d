"""The process's loop: wires that must not strand a message, and every way in which it ends."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import httpx
import numpy as np
import pytest
import uvloop
import zmq

from fourstroke.common.config import Config
from fourstroke.common.types import Finish, State
from fourstroke.ipc import codec
from fourstroke.ipc.messages import FROM_INGEST, Abort, Began, Drain, ResetCache, Submit
from fourstroke.ipc.request_ids import first_rid
from fourstroke.ipc.ring import TokenRing, ring_bytes
from fourstroke.ipc.wire import HIGH_WATER_MARK, LIVES, Inbox, Outbox, open_inbox, open_outbox
from fourstroke.procs.ingest.load_tokenizer import load_tokenizer
from fourstroke.procs.ingest.main import Ingest
from fourstroke.procs.ingest.prompts import Prompts
from fourstroke.procs.process import Process

from ..tokenizer_files import byte_level, write_folder
from .surroundings import COMPLETIONS, ending, error, events, make_board, text

RING_TOKENS = 4096
Sent = TypeVar("Sent")


class StandIn:
    """What ingest uses of a Process, with the other ends of its wires, which are ZeroMQ's inside this process."""

    name = "ingest0"

    def __init__(self, folder: Path) -> None:
        model = write_folder(folder, byte_level())
        self.config = Config(model=str(model), served_model_names=("tiny",))
        self.assignment = SimpleNamespace(index=0, life=0)
        self.board = make_board()
        self.row = self.board.row(self.name)
        self.stopping = False
        self.reports: list[tuple[State, str]] = []
        self.beats = 0
        self._context = zmq.Context()
        self.to_ingest: dict[str, Outbox] = {}
        self.submitted = open_inbox(self._context, "inproc://scheduler0", self.name, *FROM_INGEST)

    def peer(self, role: str) -> str:
        return f"{role}0"

    def peers(self, role: str) -> list[str]:
        return [] if role == "ingest" else [self.peer(role)]

    def ring_to(self, reader: str) -> TokenRing:
        return TokenRing(bytearray(ring_bytes(RING_TOKENS)))

    def live(self) -> None:
        self.row.live(self.assignment.life)

    def memory(self, name: str) -> memoryview:
        return memoryview(bytearray(ring_bytes(RING_TOKENS)))

    def outbox(self, peer: str) -> Outbox:
        return open_outbox(self._context, f"inproc://{peer}", peer)

    def inbox(self, peer: str, *expected: type) -> Inbox:
        inbox = open_inbox(self._context, f"inproc://from-{peer}", peer, *expected)
        self.to_ingest[peer] = open_outbox(self._context, f"inproc://from-{peer}", self.name)
        return inbox

    def report(self, state: State, words: str) -> None:
        self.reports.append((state, words))

    def turn(self) -> None:
        self.beats += 1

    def close(self) -> None:
        self._context.destroy(linger=0)


class Running:
    """An ingest that serves, and a client of it."""

    def __init__(self, process: StandIn, ingest: Ingest, port: int) -> None:
        self.process = process
        self.ingest = ingest
        self.table = ingest._service.table
        self.client = httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=10)

    def tell(self, peer: str, message: object) -> None:
        self.process.to_ingest[peer].send(message)

    async def ask(self, **fields: Any) -> httpx.Response:
        return await self.client.post(COMPLETIONS, json={"prompt": "Hi", **fields})

    async def submit(self) -> int:
        """The id of the next choice that reaches the scheduler."""
        return (await self.sent(Submit)).rids[0]

    async def sent(self, kind: type[Sent]) -> Sent:
        """The next message of a kind that reaches the scheduler."""
        while True:
            for message in self.process.submitted.drain(1):
                if isinstance(message, kind):
                    return message
            await asyncio.sleep(0.001)

    async def until(self, true: Callable[[], bool]) -> None:
        while not true():
            await asyncio.sleep(0.001)


Test = Callable[[Running], Awaitable[None]]


@pytest.fixture
def process(tmp_path: Path) -> Any:
    process = StandIn(tmp_path / "model")
    yield process
    process.close()


def serve(process: StandIn, test: Test) -> None:
    """Run a test beside an ingest. The ingest must end by itself, and what it raises comes out here."""

    async def run() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            prompts = Prompts(load_tokenizer(process.config.model))
            running = Running(process, Ingest(cast(Process, process), prompts, listener), listener.getsockname()[1])
            serving = asyncio.create_task(running.ingest.serve())
            await running.until(lambda: bool(process.reports) or serving.done())
            async with running.client:
                await test(running)
                await serving
            prompts.close()

    uvloop.run(asyncio.wait_for(run(), 30))


def terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def test_more_texts_than_are_taken_at_once(process: StandIn) -> None:
    """However many texts wait, and bad frames among them, the last one arrives without another to push it."""
    count = HIGH_WATER_MARK + 100

    async def test(running: Running) -> None:
        asking = asyncio.create_task(running.ask(max_tokens=9))
        rid = await running.submit()
        socket = process.to_ingest["output0"].socket
        socket.send(b"nonsense", zmq.NOBLOCK)
        for _ in range(count - 1):
            socket.send(LIVES.pack(0, 0) + codec.encode(text((rid, "x", 0))), zmq.NOBLOCK)
        running.tell("output0", text(endings=(ending(rid, Finish.LENGTH),)))
        beats = process.beats
        assert (await asking).json()["choices"][0]["text"] == "x" * (count - 1)
        assert process.beats <= beats + 1
        terminate()

    serve(process, test)


def test_heartbeat_looks_at_the_wires(process: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    """A text or an order of which no descriptor told is found by the next heartbeat."""
    monkeypatch.setattr("fourstroke.procs.ingest.main.HEARTBEAT_MS", 10)

    async def test(running: Running) -> None:
        loop = asyncio.get_running_loop()
        for inbox, _ in running.ingest._wires:
            loop.remove_reader(inbox.socket.getsockopt(zmq.FD))  # type: ignore[attr-defined]
        asking = asyncio.create_task(running.ask())
        rid = await running.submit()
        running.tell("output0", text((rid, "x", 1), endings=(ending(rid, Finish.LENGTH),)))
        assert (await asking).json()["choices"][0]["text"] == "x"
        running.tell("supervisor", Drain())

    serve(process, test)
    assert process.reports[-1] == (State.STOPPED, "drained")


def test_time_is_up_while_the_ring_is_full(process: StandIn) -> None:
    """A request that finds no room gets its answer in time, although nothing else happens that could wake anybody."""

    async def test(running: Running) -> None:
        running.ingest._router._ways[0]._ring.write(np.zeros(RING_TOKENS, np.int32))
        assert error(await running.ask(timeout=0.02), 504)["code"] == "timeout"
        terminate()

    serve(process, test)


@pytest.mark.parametrize("dies", ["scheduler0", "output0"])
def test_a_process_is_replaced(process: StandIn, dies: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As soon as output says that it begins, or that a scheduler does, what was lost is handed over again."""
    monkeypatch.setattr("fourstroke.procs.ingest.main.HEARTBEAT_MS", 20_000)

    async def test(running: Running) -> None:
        asking = asyncio.create_task(running.ask())
        rid = await running.submit()
        process.board.row(dies).live(1)
        running.tell("output0", Began() if dies == "output0" else text())
        assert (await running.sent(Abort)).rid == rid
        again = await running.submit()
        assert again != rid
        running.tell("output0", text((rid, "y", 1), (again, "x", 1), endings=(ending(again, Finish.LENGTH),)))
        assert (await asking).json()["choices"][0]["text"] == "x"
        terminate()

    serve(process, test)


def test_an_abort_that_nobody_answers(process: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    """The heartbeat ends what somebody behind ingest should have ended."""
    monkeypatch.setattr("fourstroke.procs.ingest.main.HEARTBEAT_MS", 10)
    monkeypatch.setattr("fourstroke.procs.ingest.table.PATIENCE_S", 0)

    async def test(running: Running) -> None:
        asking = asyncio.create_task(running.ask())
        await running.submit()
        (request,) = running.table._requests
        assert running.table.abort(request)
        assert (await asking).json()["choices"][0]["finish_reason"] == "abort"
        terminate()

    serve(process, test)


def test_ids_of_a_later_life(process: StandIn) -> None:
    """An ingest that takes another's place uses none of its ids again."""
    process.assignment.life = 3

    async def test(running: Running) -> None:
        asking = asyncio.create_task(running.ask())
        assert await running.submit() == first_rid(0, 3)
        terminate()
        await asking

    serve(process, test)


@pytest.mark.parametrize("name", ["executor0", "scheduler0"])
def test_an_engine_is_ready_when_both_of_its_processes_are(process: StandIn, name: str) -> None:
    """An engine that only waits for one of them computes nothing."""

    async def test(running: Running) -> None:
        assert running.ingest._router._ready(0)
        process.board.row(name).enter(State.STARTING)
        assert not running.ingest._router._ready(0)
        terminate()

    serve(process, test)


def test_reset_of_the_cache(process: StandIn) -> None:
    """A reset goes to the scheduler, and its answer comes back as an ending. A drain waits for it."""

    async def test(running: Running) -> None:
        asking = asyncio.create_task(running.client.post("/reset_prefix_cache", json={"force": True}))
        reset = await running.sent(ResetCache)
        running.tell("supervisor", Drain())
        await running.until(lambda: process.reports[-1][0] is State.DRAINING)
        running.tell("output0", text(endings=(ending(reset.rid, Finish.STOP),)))
        assert (await asking).json() == {"status": "reset"}

    serve(process, test)
    assert process.reports[-1] == (State.STOPPED, "drained")


def test_drain(process: StandIn) -> None:
    """A server that drains finishes what runs to the last byte, takes nothing new, and says when it is done."""

    async def test(running: Running) -> None:
        asking = asyncio.create_task(running.ask(stream=True))
        rid = await running.submit()
        running.tell("output0", text((rid, "a", 1)))
        running.tell("supervisor", Drain())
        await running.until(lambda: any(state is State.DRAINING for state, _ in process.reports))
        assert error(await running.ask(), 503)["code"] == "draining"
        running.tell("output0", text((rid, "b", 1), endings=(ending(rid, Finish.LENGTH),)))
        chunks = events(await asking)
        assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == "ab"

    serve(process, test)
    assert [state for state, _ in process.reports] == [State.READY, State.DRAINING, State.STOPPED]
    assert process.reports[-1] == (State.STOPPED, "drained")


def test_drain_of_an_idle_server(process: StandIn) -> None:
    """With nothing to finish, draining is done at once, also when the order is given twice."""

    async def test(running: Running) -> None:
        running.tell("supervisor", Drain())
        running.tell("supervisor", Drain())

    serve(process, test)
    assert [state for state, _ in process.reports] == [State.READY, State.DRAINING, State.STOPPED]


@pytest.mark.parametrize("drain", [False, True], ids=["at-once", "during-a-drain"])
def test_stop(process: StandIn, drain: bool) -> None:
    """SIGTERM ends what runs with the reason, by status or as the last event; nobody is told that it was drained."""

    async def test(running: Running) -> None:
        whole = asyncio.create_task(running.ask())
        await running.submit()
        streamed = asyncio.create_task(running.ask(stream=True))
        rid = await running.submit()
        running.tell("output0", text((rid, "a", 1)))
        await running.until(lambda: any(choice.read_chars for choice in running.table._choices.values()))
        if drain:
            running.tell("supervisor", Drain())
            await running.until(lambda: process.reports[-1][0] is State.DRAINING)
        terminate()
        found = error(await whole, 503)
        assert (found["type"], found["message"]) == ("server_error", "the server is stopping")
        last = (await streamed).text.split("\n\n")[-2]
        assert last.startswith("data: {") and "the server is stopping" in last and "finish_reason" not in last
        await running.until(lambda: not running.table.busy)

    serve(process, test)
    assert (State.STOPPED, "drained") not in process.reports
    assert sum(isinstance(message, Abort) for message in process.submitted.drain()) == 2


def test_stop_before_the_loop_runs(process: StandIn) -> None:
    """A SIGTERM that came while the tokenizer was loaded is obeyed as soon as there is a loop."""
    process.stopping = True

    async def test(running: Running) -> None:
        pass

    serve(process, test)
    assert process.beats == 0


def _break(running: Running) -> None:
    running.table.deliver = lambda text: 1 / 0  # type: ignore[method-assign,assignment,return-value]
    running.tell("output0", text())


def _break_task(running: Running) -> None:
    async def fail() -> None:
        raise ZeroDivisionError

    asyncio.get_running_loop().create_task(fail())


@pytest.mark.parametrize("break_it", [_break, _break_task], ids=["callback", "task"])
def test_bug(process: StandIn, break_it: Callable[[Running], None]) -> None:
    """A bug in a callback or a task ends the process with its cause, after clients have been told."""

    async def test(running: Running) -> None:
        asking = asyncio.create_task(running.ask())
        await running.submit()
        break_it(running)
        error(await asking, 503)

    with pytest.raises(ZeroDivisionError):
        serve(process, test)


def test_trouble_with_a_connection(process: StandIn) -> None:
    """What befalls one connection is logged, and the process goes on."""

    async def test(running: Running) -> None:
        loop = asyncio.get_running_loop()
        loop.call_exception_handler({"message": "a connection", "exception": ValueError("x"), "transport": None})
        asking = asyncio.create_task(running.ask())
        rid = await running.submit()
        running.tell("output0", text((rid, "x", 1), endings=(ending(rid, Finish.LENGTH),)))
        assert (await asking).status_code == 200
        terminate()

    serve(process, test)
