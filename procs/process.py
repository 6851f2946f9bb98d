"""What every process does alike: title, parent's death, signals, wires, board, and how it ends.

A process's main calls `run(role, serve)`. `serve` gets a Process, opens its wires by the names in its
assignment, says that it lives, and loops: `wait` blocks in one poll until a message, a free socket, a signal or the
time-out comes. Here is the one broad `except` of a process, which reports the cause to the supervisor and exits.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import setproctitle
import zmq

from ..common.config import Assignment
from ..common.errors import FourstrokeError
from ..common.log import configure
from ..common.types import EXIT_FAILED, EXIT_REFUSED, SUPERVISOR, State, role_of
from ..ipc.board import Board
from ..ipc.messages import Began, Report
from ..ipc.ring import TokenRing
from ..ipc.segment import BOARD, Segment, ring_name
from ..ipc.wire import Inbox, Lives, Outbox, address, open_inbox, open_outbox

HEARTBEAT_MS = 1000
"""How often an idle loop comes round."""

RETRY_MS = 10
"""How soon a loop comes round that waits for room in a peer's ring."""

_PR_SET_PDEATHSIG = 1


class HasFileno(Protocol):
    """What a poll can wait for."""

    def fileno(self) -> int: ...


class Process:
    """One process's surroundings, made from its assignment."""

    def __init__(self, assignment: Assignment) -> None:
        self.name = assignment.name
        self.config = assignment.config
        self.assignment = assignment
        configure(assignment.name, assignment.config.log_level)
        self.stopping = False
        self._segments: dict[str, Segment] = {}
        self._context = zmq.Context()
        self._written: list[TokenRing] = []
        self._inboxes: list[Inbox] = []
        self._outboxes: list[Outbox] = []
        self._poller = zmq.Poller()
        self._wake_read, self._wake_write = socket.socketpair()
        self._watch_signals()
        self.board = Board(self.memory(BOARD), assignment.board)
        self.row = self.board.row(self.name)
        self.supervisor = self.outbox(SUPERVISOR)
        self.row.begin()

    def _watch_signals(self) -> None:
        """SIGTERM ends the loop at its next turn; the handler itself does no more than write that down."""
        self._wake_read.setblocking(False)
        self._wake_write.setblocking(False)
        signal.set_wakeup_fd(self._wake_write.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self._poller.register(self._wake_read, zmq.POLLIN)

    def _stop(self, _signal: int, _frame: object) -> None:
        self.stopping = True

    def memory(self, name: str) -> memoryview:
        """The shared memory segment of this server with that name."""
        segment = Segment.attach(self.assignment.owner, name)
        self._segments[name] = segment
        return segment.memory

    def peers(self, role: str) -> list[str]:
        """The processes of a role that this one sends to or hears from, in order."""
        known = dict.fromkeys(self.assignment.sends_to + self.assignment.hears_from)
        return [name for name in known if role_of(name) == role]

    def peer(self, role: str) -> str:
        """The only process of a role that this one sends to or hears from."""
        (name,) = self.peers(role)
        return name

    def inbox(self, peer: str, *expected: type) -> Inbox:
        """Open the wire from a peer. It carries messages of the expected types."""
        where = address(self.assignment.socket_folder, peer, self.name)
        inbox = open_inbox(self._context, where, peer, *expected, lives=self._lives(peer))
        self._inboxes.append(inbox)
        self._poller.register(inbox.socket, zmq.POLLIN)
        return inbox

    def outbox(self, peer: str) -> Outbox:
        """Open the wire to a peer."""
        where = address(self.assignment.socket_folder, self.name, peer)
        outbox = open_outbox(self._context, where, peer, self._lives(peer))
        self._outboxes.append(outbox)
        return outbox

    def _lives(self, peer: str) -> Lives:
        row = self.board.row(peer)
        return Lives(self.assignment.life, lambda: row.life)

    def ring_from(self, writer: str) -> TokenRing:
        """The ring that this process reads, opened before `live`: what was written for one before is passed over."""
        ring = TokenRing(self.memory(ring_name(writer, self.name)))
        ring.forget()
        return ring

    def ring_to(self, reader: str) -> TokenRing:
        """The ring that this process writes, opened before `live`."""
        ring = TokenRing(self.memory(ring_name(self.name, reader)))
        self._written.append(ring)
        return ring

    def live(self) -> None:
        """From now on what others send is meant for this process. All its wires and rings are open.

        One that takes the place of another tells all to whom it sends. What the other has written is passed over by
        its readers from now on, so nobody would make room in a ring that it has left full.
        """
        life = self.assignment.life
        self.row.live(life)
        if life:
            for ring in self._written:
                ring.forget()
            for outbox in self._outboxes:
                if outbox is not self.supervisor:
                    outbox.send(Began())

    def watch(self, source: HasFileno) -> None:
        """End `wait` also when something else than a wire has become readable."""
        self._poller.register(source, zmq.POLLIN)

    def report(self, state: State, text: str) -> None:
        """Tell the board and the supervisor what this process is doing."""
        self.row.enter(state)
        self.supervisor.send(Report(state, text))

    def wait(self, timeout_ms: int = HEARTBEAT_MS, listen: bool = True) -> None:
        """Block until a message has arrived, a full socket has room again, a signal came or time is up.

        Without `listen` messages are left waiting: this process has no room for what would follow from them.
        """
        for inbox in self._inboxes:
            self._poller.register(inbox.socket, zmq.POLLIN if listen else 0)
        for outbox in self._outboxes:
            self._poller.register(outbox.socket, zmq.POLLOUT if outbox.waiting else 0)
        for ready, _ in self._poller.poll(timeout_ms):
            if ready == self._wake_read.fileno():
                self._wake_read.recv(4096)
        self.turn()

    def turn(self) -> None:
        """Mark one turn of the main loop: retry full sockets, beat the heart, count bad frames."""
        for outbox in self._outboxes:
            outbox.flush()
        self.row.beat()
        self.row["bad_frames"] = sum(inbox.bad_frames for inbox in self._inboxes)

    def close(self) -> None:
        for inbox in self._inboxes:
            inbox.close()
        for outbox in self._outboxes:
            outbox.close()
        self._context.term()


def run(role: str, serve: Callable[[Process], Any]) -> None:
    """The life of a process: take the assignment named on the command line, serve, and exit with the truth."""
    setproctitle.setproctitle(f"fourstroke: {role}")
    assignment = Assignment.load(Path(sys.argv[1]))
    if sum(role_of(name) == role for name in assignment.board) > 1:
        setproctitle.setproctitle(f"fourstroke: {assignment.name}")
    _die_with(assignment.supervisor_pid)
    try:
        process = Process(assignment)
    except FourstrokeError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(EXIT_REFUSED)
    status = 0
    try:
        serve(process)
        process.report(State.STOPPED, "stopped")
    except FourstrokeError as error:
        process.report(State.FAILED, str(error))
        status = EXIT_REFUSED
    except Exception as error:  # noqa: BLE001 (the one broad except: report the cause, exit)
        traceback.print_exc()
        process.report(State.FAILED, f"{type(error).__name__}: {error}")
        status = EXIT_FAILED
    process.close()
    sys.exit(status)


def _die_with(parent: int) -> None:
    """Have the kernel kill this process when its parent dies, and go at once if that has happened already."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(f"fourstroke: the supervisor {parent} is gone")
