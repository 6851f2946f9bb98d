"""The ingest process: HTTP on one side, the wires to schedulers and from output on the other, one event loop.

Python's asyncio waits for everything: connections, the wires (by the file descriptors that ZeroMQ gives for
that), SIGTERM, and a timer that beats the heart. Whatever a callback or a task raises that nobody catches
ends the process with that cause. Run as `python -m fourstroke.procs.ingest.main ASSIGNMENT
--listen-fd N`, where N is a listening socket.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any

import uvloop
import zmq

from ...common.errors import BadMessage
from ...common.types import SUPERVISOR, State, number_of
from ...ipc.block_hash import root
from ...ipc.loads import LOADS, Loads
from ...ipc.messages import FROM_SIBLING, Drain, Text
from ...ipc.wire import Inbox
from ..process import HEARTBEAT_MS, RETRY_MS, Process, run
from .app import make_app
from .errors import stopping
from .health import works
from .load_tokenizer import load_tokenizer
from .prompts import Prompts
from .router import Router
from .server import Server
from .service import Service
from .submit import Submitter

SWITCH_INTERVAL_S = 0.0005
"""A thread that computes in Python lets the loop go on after so long: with the usual 5 ms each token would wait."""


class Ingest:
    """The process's loop and what hangs on it. Made inside the running loop."""

    def __init__(self, process: Process, prompts: Prompts, listener: socket.socket) -> None:
        self._process = process
        self._loop = asyncio.get_running_loop()
        self._done = asyncio.Event()
        self._retrying = False
        self._drained = False
        self._failure: Exception | None = None
        index, life = process.assignment.index, process.assignment.life
        ways = [self._way_to(scheduler) for scheduler in process.peers("scheduler")]
        self._router = Router(ways, self._loads(), index, ready=self._is_ready)
        self._service = Service(process.config, prompts, process.board, process.row, self._router, index, life)
        self._server = Server(make_app(self._service), listener)
        self._wires: list[tuple[Inbox, Callable[[Inbox], None]]] = [
            *((process.inbox(output, Text), self._take_texts) for output in process.peers("output")),
            *((self._way_from(sibling), self._take_from_sibling) for sibling in process.peers("ingest")),
            (process.inbox(SUPERVISOR, Drain), self._take_orders),
        ]

    def _way_to(self, scheduler: str) -> Submitter:
        return Submitter(
            self._process.name, self._process.ring_to(scheduler), self._process.outbox(scheduler), self._retry_later
        )

    def _loads(self) -> Loads:
        process = self._process
        ingests, engines = len(process.board.of_role("ingest")), len(process.peers("scheduler"))
        return Loads(process.memory(LOADS), ingests, engines, process.assignment.index)

    def _is_ready(self, engine: int) -> bool:
        board = self._process.board
        return all(works(board.of_role(role)[engine]) for role in ("scheduler", "executor"))

    def _way_from(self, sibling: str) -> Inbox:
        self._service.siblings.add(number_of(sibling), self._process.outbox(sibling))
        return self._process.inbox(sibling, *FROM_SIBLING)

    async def serve(self) -> None:
        """Serve until SIGTERM, or until everything has been sent after a Drain.

        Raises what a callback or a task raised, for it would be lost otherwise.
        """
        self._loop.set_exception_handler(self._on_exception)
        self._loop.add_signal_handler(signal.SIGTERM, self._done.set)
        if self._process.stopping:  # told so while the tokenizer was being loaded
            self._done.set()
        for inbox, take in self._wires:
            self._loop.add_reader(_descriptor(inbox), take, inbox)
        self._process.live()
        await self._server.start()
        self._process.report(State.READY, "accepting requests")
        while not self._done.is_set():
            await self._beat()
        self._service.draining = True
        self._service.table.fail_all(stopping())
        await self._server.stop()
        self._service.grammars.close()
        if self._failure is not None:
            raise self._failure
        if self._drained:
            self._process.report(State.STOPPED, "drained")

    async def _beat(self) -> None:
        self._process.turn()
        for inbox, take in self._wires:
            self._loop.call_soon(take, inbox)
        self._service.table.end_overdue()
        self._service.update_row()
        await self._server.tick()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._done.wait(), HEARTBEAT_MS / 1000)

    def _on_exception(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """End the process for what a callback or a task raised; what befalls a connection ends that one alone."""
        error = context.get("exception")
        if isinstance(error, Exception) and ("handle" in context or "future" in context):
            self._failure = self._failure or error
            self._done.set()
        else:
            loop.default_exception_handler(context)

    # ZeroMQ's descriptor is readable once for any number of messages: each call must empty the wire, or come again.
    # The heartbeat looks, too: a lost edge costs no more than a second.

    def _take_texts(self, inbox: Inbox) -> None:
        for text in inbox.drain():
            try:
                self._service.table.deliver(text)
            except BadMessage as error:
                inbox.reject(error)
        self._service.table.look()  # an output that begins, or that tells of a scheduler, has nothing else to say
        self._push()
        if _has_more(inbox):
            self._loop.call_soon(self._take_texts, inbox)

    def _take_from_sibling(self, inbox: Inbox) -> None:
        for message in inbox.drain():
            try:
                self._service.siblings.hear(number_of(inbox.peer), message)
            except BadMessage as error:
                inbox.reject(error)
        if _has_more(inbox):
            self._loop.call_soon(self._take_from_sibling, inbox)

    def _take_orders(self, inbox: Inbox) -> None:
        for _ in inbox.drain():
            if not self._service.draining:
                self._service.draining = True
                self._process.report(State.DRAINING, f"finishing what runs: {len(self._service.table)} choices")
                self._service.table.when_idle(self._finish)

    def _finish(self) -> None:
        self._drained = not self._done.is_set()  # else a signal came first, and what ran was cut off
        self._done.set()

    def _retry_later(self) -> None:
        if not self._retrying:
            self._retrying = True
            self._loop.call_later(RETRY_MS / 1000, self._retry)

    def _retry(self) -> None:
        self._retrying = False
        self._push()

    def _push(self) -> None:
        """Hand over what waits for room; what has waited for too long ends."""
        self._service.table.time_out(self._router.retry())


def _descriptor(inbox: Inbox) -> int:
    assert isinstance(inbox.socket, zmq.Socket)
    return int(inbox.socket.getsockopt(zmq.FD))


def _has_more(inbox: Inbox) -> bool:
    assert isinstance(inbox.socket, zmq.Socket)
    return bool(int(inbox.socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN)


async def _serve(process: Process, prompts: Prompts, listener: socket.socket) -> None:
    await Ingest(process, prompts, listener).serve()


def _listener(arguments: list[str]) -> socket.socket:
    parser = argparse.ArgumentParser(prog="ingest")
    parser.add_argument("--listen-fd", type=int, required=True)
    return socket.socket(fileno=parser.parse_args(arguments).listen_fd)


def serve(process: Process) -> None:
    """Serve HTTP until the process is told to stop."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    listener = _listener(sys.argv[2:])
    process.report(State.STARTING, "loading the tokenizer")
    prompts = Prompts(load_tokenizer(process.config.model), root(process.config.kv_events_hash_seed))
    try:
        uvloop.run(_serve(process, prompts, listener))
    finally:
        prompts.close()


def main() -> None:
    run("ingest", serve)


if __name__ == "__main__":
    main()
