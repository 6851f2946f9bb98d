"""An ingest with all that is around it in one process: a tiny tokenizer, a board, and an engine that tests direct."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from fourstroke.common.config import Config
from fourstroke.common.types import Finish, State
from fourstroke.ipc import codec
from fourstroke.ipc.board import Board, board_bytes
from fourstroke.ipc.messages import Abort, Ending, ResetCache, Submit, Text, Ticket
from fourstroke.ipc.ring import TokenRing, ring_bytes
from fourstroke.ipc.wire import LIVES, Outbox
from fourstroke.procs.ingest.app import make_app
from fourstroke.procs.ingest.errors import stopping
from fourstroke.procs.ingest.load_tokenizer import load_tokenizer
from fourstroke.procs.ingest.prompts import Prompts
from fourstroke.procs.ingest.router import Router
from fourstroke.procs.ingest.server import Server
from fourstroke.procs.ingest.service import Service
from fourstroke.procs.ingest.submit import Submitter

from ..tokenizer_files import byte_level, write_folder
from .contract import Contract

PROCESSES = ("supervisor", "ingest0", "scheduler0", "executor0", "output0", "publisher0")
MAX_MODEL_LEN = 300
VOCAB = 400
COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
TEMPLATE = (
    "{% for message in messages %}{{ '<s>' + message['role'] + '\n' + message['content'] + '<|end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<s>assistant\n' }}{% endif %}"
)


class Engine:
    """The scheduler's end of the wire. Answers each request with numbered words, or waits for the test's orders."""

    def __init__(self, ring: TokenRing) -> None:
        self.submits: list[Submit] = []
        self.rids: list[int] = []
        self.resets: list[ResetCache] = []
        self.tickets: list[Ticket] = []
        self.prompts: list[list[int]] = []
        self.aborts: list[Abort] = []
        self.by_hand = False
        self.service: Service
        self._ring = ring
        self._news = asyncio.Event()

    # What a wire's socket has

    def send(self, data: bytes, flags: int = 0) -> None:
        message = codec.decode(memoryview(data)[LIVES.size :], Submit, Abort, ResetCache)
        if isinstance(message, Submit):
            self._take(message)
        elif isinstance(message, ResetCache):
            self.resets.append(message)
        else:
            self.aborts.append(message)
        self._news.set()

    def recv_multipart(self, flags: int = 0) -> list[bytes]:
        raise AssertionError("nothing is received on this wire")

    def close(self, linger: int | None = None) -> None:
        pass

    def _take(self, submit: Submit) -> None:
        self.submits.append(submit)
        self.rids += submit.rids
        self.tickets.append(codec.decode(submit.ticket, Ticket))
        self.prompts.append(self._ring.take(submit.prompt_at, submit.prompt_tokens).tolist())
        if not self.by_hand:
            for rid in submit.rids:
                asyncio.get_running_loop().call_soon(self._answer, rid, 0, submit.limits.max_tokens)

    def _answer(self, rid: int, number: int, most: int) -> None:
        """The next word; each in a turn of its own, as steps are."""
        if number == most:
            self.end(rid, Finish.LENGTH, most)
        else:
            self.say(rid, f"w{number} ")
            asyncio.get_running_loop().call_soon(self._answer, rid, number + 1, most)

    # Orders of a test

    async def until(self, count: int, of: list[Any]) -> None:
        """Wait until a list of this engine has so many entries."""
        while len(of) < count:
            self._news.clear()
            await asyncio.wait_for(self._news.wait(), 10)

    def begin(self, rid: int, cached_tokens: int) -> None:
        """Output has heard of a request, of whose prompt so many tokens were in the prefix cache."""
        opened, cached = np.array([rid], np.int64).tobytes(), np.array([cached_tokens], np.int32).tobytes()
        self.service.table.deliver(Text(b"", b"", (), b"", (), opened=opened, cached_tokens=cached))

    def say(self, rid: int, delta: str, tokens: int = 1) -> None:
        self.service.table.deliver(text((rid, delta, tokens)))

    def end(self, rid: int, finish: Finish, tokens: int = 1, **fields: Any) -> None:
        self.service.table.deliver(Text(b"", b"", (), b"", (ending(rid, finish, tokens, **fields),)))


def text(*rows: tuple[int, str, int], endings: tuple[Ending, ...] = ()) -> Text:
    """A Text whose rows are (rid, delta, tokens)."""
    rids = np.array([row[0] for row in rows], np.int64).tobytes()
    counts = np.array([row[2] for row in rows], np.int32)
    ids = np.arange(counts.sum(), dtype=np.int32).tobytes()
    return Text(rids, counts.tobytes(), tuple(row[1] for row in rows), ids, endings)


def ending(rid: int, finish: Finish, tokens: int = 1, **fields: Any) -> Ending:
    """An Ending without a stop reason, unless the fields have one."""
    rest = {"stop_string": None, "stop_token": -1, "detail": "", **fields}
    return Ending(rid=rid, finish=finish, tokens=tokens, **rest)


def make_board() -> Board:
    """A board on which everything is ready."""
    board = Board(bytearray(board_bytes(len(PROCESSES))), PROCESSES)
    for row in board.rows.values():
        row.enter(State.READY)
        row["pid"] = os.getpid()
    board.row("executor0")["max_model_len"] = MAX_MODEL_LEN
    board.row("executor0")["vocab_size"] = VOCAB
    return board


class Surroundings:
    """A service and its engine. `ask` and `stream` are requests to it in one line."""

    def __init__(self, folder: Path, *, ring_tokens: int = 4096, add_bos: bool = False, **config: Any) -> None:
        names = dict.fromkeys(("bos_token", "eos_token"), "<s>")
        model = write_folder(folder, byte_level(), chat_template=TEMPLATE, add_bos_token=add_bos, **names)
        self.board = make_board()
        self.ring = TokenRing(bytearray(ring_bytes(ring_tokens)))
        self.engine = Engine(self.ring)
        to_engine = Outbox(self.engine, "scheduler0")
        self.router = Router([Submitter("ingest0", self.ring, to_engine, self._retry_later)])
        self.service = self.engine.service = Service(
            Config(model=str(model), served_model_names=("tiny", "alias"), **config),
            Prompts(load_tokenizer(str(model))),
            self.board,
            self.board.row("ingest0"),
            self.router,
            index=0,
        )
        self.app = make_app(self.service)
        self.contract = Contract(with_key=self.service.config.api_key is not None)
        self.retries_wanted = 0
        self.connections: set[Any] = set()

    def _retry_later(self) -> None:
        self.retries_wanted += 1

    def client(self) -> httpx.AsyncClient:
        """A client that calls the application without a connection. It sees a stream only when it is whole.

        Every answer is compared with the description of the API.
        """
        transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
        return httpx.AsyncClient(transport=transport, base_url="http://test", event_hooks={"response": [self._check]})

    async def _check(self, response: httpx.Response) -> None:
        await response.aread()
        self.contract.check(response)

    async def post(self, path: str, body: Any, **headers: str) -> httpx.Response:
        content = body if isinstance(body, bytes) else json.dumps(body)
        async with self.client() as client:
            return await client.post(path, content=content, headers=headers)

    @contextlib.asynccontextmanager
    async def served(self) -> AsyncIterator[int]:
        """The application on a real socket; gives its port."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            server = Server(self.app, listener)
            await server.start()
            self.connections = server.server_state.connections
            try:
                yield listener.getsockname()[1]
            finally:
                self.service.table.fail_all(stopping())
                await server.stop()


def events(response: httpx.Response) -> list[Any]:
    """The JSON of a stream's events; it must end with [DONE]."""
    blocks = response.text.split("\n\n")
    assert blocks[-2:] == ["data: [DONE]", ""]
    return [json.loads(block.removeprefix("data: ")) for block in blocks[:-2]]


def error(response: httpx.Response, status: int) -> dict[str, Any]:
    """The error object of a response that must have a status."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    found = response.json()["error"]
    assert set(found) == {"message", "type", "param", "code"}
    assert found["message"]
    return found
