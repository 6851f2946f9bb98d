"""The life of a server: start every process, wait until all are ready, watch them, stop them in order.

One thread and one poll. What happens is written into the children and into three plain facts (stop
signals, a closed owner, a death); the phases below wait on those facts. The supervisor knows no roles but
ingest, whose processes get the listening sockets and are drained first, and the order of the strokes.

The server stops when asked (SIGTERM, SIGINT or SIGHUP: requests end first, for up to the drain time-out; a second
signal skips that, a third kills), when its owner goes away (--stop-on-eof), or when a process dies. Only the publisher,
which no request needs, is started again.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Sequence

import zmq

from ..common.config import Config
from ..common.errors import FourstrokeError, ResourceError, ServerError
from ..common.types import SUPERVISOR, State
from ..ipc.board import Board
from ..ipc.messages import Drain, Report
from ..ipc.segment import BOARD
from ..ipc.wire import Inbox, Lives, Outbox, address, open_inbox, open_outbox
from .child import Child
from .console import announce, say
from .event_loop import EventLoop, StopSignals
from .listener import Listener
from .surroundings import Surroundings, surroundings
from .topology import STROKES, ProcessSpec, Topology, WireSpec, assignment

STOP_TIMEOUT_S = 5.0
"""How long the processes may take together to end one after the other, when they are asked to."""

LAST_TIMEOUT_S = 1.0
"""How long those have that are left then and are asked all at once, before they are killed."""


MAX_RESTARTS = 3
"""So often in RESTARTS_WITHIN_S a process is started again; then its death is the server's."""

RESTARTS_WITHIN_S = 60.0


class RefusalError(FourstrokeError):
    """A process could not do what the configuration asks, and said why."""


def supervise(config: Config, topology: Topology, listener: Listener, stop_on_eof: int | None = None) -> None:
    """Run a server that listens there until it is asked to stop; it listens no more then.

    `stop_on_eof` is a file descriptor: when its other end is closed, the server stops at once. Raises
    ResourceError if it cannot be set up, RefusalError or ServerError with the cause if a process ended.
    """
    signals = StopSignals()
    try:
        with surroundings(topology) as made:
            _Supervisor(config, topology, listener, signals, made).run(stop_on_eof)
    finally:
        signals.close()


class _Supervisor:
    def __init__(
        self, config: Config, topology: Topology, listener: Listener, signals: StopSignals, made: Surroundings
    ) -> None:
        self._config = config
        self._topology = topology
        self._listener = listener
        self._signals = signals
        self._made = made
        self._row = Board(made.segments[BOARD].memory, topology.board).row(SUPERVISOR)
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._loop = EventLoop()
        self._children: dict[str, Child] = {}
        self._orders: dict[str, Outbox] = {}
        self._lives: dict[str, int] = {}
        self._restarts: deque[float] = deque(maxlen=MAX_RESTARTS)
        self._owner_gone = False
        self._death: Child | None = None

    def run(self, stop_on_eof: int | None) -> None:
        self._loop.add(self._signals.fileno(), self._on_signal)
        if stop_on_eof is not None:
            self._loop.add(stop_on_eof, lambda: self._on_owner(stop_on_eof))
        self._row.enter(State.STARTING)
        started_s = time.monotonic()
        try:
            for spec in self._topology.processes:
                self._start(spec)
            if self._await_ready():
                self._row.enter(State.READY)
                announce(self._welcome(time.monotonic() - started_s))
                self._loop.until(lambda: self._interrupted)
                self._drain()
        finally:
            self._stop()
        self._tell_the_truth()

    # Phases

    def _start(self, spec: ProcessSpec, inbox: Inbox | None = None) -> None:
        """Start a process; `inbox` is the wire from the one that it takes the place of."""
        folder, life = self._made.folder, self._lives.get(spec.name, -1) + 1
        self._lives[spec.name] = life
        told = assignment(
            spec,
            self._topology,
            self._config,
            supervisor_pid=os.getpid(),
            socket_folder=str(folder),
            owner=self._made.owner,
            life=life,
        )
        if WireSpec(SUPERVISOR, spec.name) in self._topology.wires:
            where = address(str(folder), SUPERVISOR, spec.name)
            self._orders[spec.name] = open_outbox(self._context, where, spec.name)
        path = folder / f"{spec.name}.json"
        try:
            path.touch(mode=0o600)  # it may hold the API key
            told.save(path)
        except OSError as error:
            raise ResourceError(f"cannot write {path}: {error.strerror}") from None
        where = address(str(folder), spec.name, SUPERVISOR)
        lives = Lives(0, lambda: self._lives[spec.name])
        inbox = inbox or open_inbox(self._context, where, spec.name, Report, lives=lives)
        arguments = [str(path)]
        fds = [self._listener.of_ingest(told.index).fileno()] if spec.role == "ingest" else []
        for fd in fds:
            arguments += ["--listen-fd", str(fd)]
        try:
            child = Child(spec, arguments, inbox, fds)
        except OSError as error:
            raise ResourceError(f"cannot start {spec.name}: {error.strerror}") from None
        self._children[spec.name] = child
        self._loop.add(inbox.socket, lambda: self._on_report(child))
        self._loop.add(child.output.fileno(), lambda: self._on_output(child))
        self._loop.add(child.pidfd, lambda: self._on_exit(child))

    def _await_ready(self) -> bool:
        """True once every process is ready; false if the server is to stop before that."""
        timeout_s = self._config.start_timeout_s
        children = self._children.values()
        if not self._loop.until(lambda: self._interrupted or all(child.ready for child in children), timeout_s):
            late = ", ".join(f"{child.name} ({child.text})" for child in children if not child.ready)
            raise ServerError(f"not ready within --start-timeout {timeout_s:g} s: {late}")
        return not self._interrupted

    def _drain(self) -> None:
        """Let the requests that run come to their end, unless there is a reason to hurry."""
        if self._in_a_hurry:
            return
        self._row.enter(State.DRAINING)
        self._listener.close()
        ingests = [child for child in self._children.values() if child.role == "ingest"]
        for ingest in ingests:
            ingest.may_end = True
            self._orders[ingest.name].send(Drain())
        timeout_s = self._config.drain_timeout_s
        if not self._loop.until(lambda: self._in_a_hurry or all(ingest.stopped for ingest in ingests), timeout_s):
            say(f"fourstroke: some requests did not end within --drain-timeout {timeout_s:g} s and are cut off")

    def _stop(self) -> None:
        """End every process: SIGTERM to one stroke after the other; SIGKILL for what is left."""
        self._listener.close()
        signals_so_far = self._signals.count
        children = list(self._children.values())

        def ended(some: Sequence[Child]) -> Callable[[], bool]:
            """Whether these have ended, or another signal asks not to wait for it."""
            return lambda: not any(child.alive for child in some) or self._signals.count > signals_so_far

        deadline_s = time.monotonic() + STOP_TIMEOUT_S
        for role in STROKES:
            alike = [child for child in children if child.role == role]
            for child in alike:
                child.terminate()
            self._loop.until(ended(alike), deadline_s - time.monotonic())
        self._loop.until(ended(children), LAST_TIMEOUT_S)
        for child in children:
            child.kill()
        self._loop.until(lambda: not any(child.alive for child in children), STOP_TIMEOUT_S)
        for child in children:
            child.close()
        self._row.enter(State.STOPPED)
        self._context.destroy(linger=0)

    def _tell_the_truth(self) -> None:
        """Raise what went wrong, if anything did."""
        if self._death is not None:
            if self._death.refused:
                raise RefusalError(self._death.cause_of_death())
            for line in self._death.last_words():
                say(f"    | {line}")
            raise ServerError(self._death.cause_of_death())
        killed = [child.name for child in self._children.values() if child.killed]
        if killed:
            raise ServerError(f"{', '.join(killed)} did not end when asked to and had to be killed")

    # The facts that the phases wait on, and the events that make them

    @property
    def _interrupted(self) -> bool:
        return self._signals.count > 0 or self._owner_gone or self._death is not None

    @property
    def _in_a_hurry(self) -> bool:
        return self._signals.count > 1 or self._owner_gone or self._death is not None

    def _on_signal(self) -> None:
        for name in self._signals.read():
            say(
                f"fourstroke: {name}, stopping"
                + (" when all requests have ended" if self._signals.count == 1 else " now")
            )

    def _on_owner(self, fd: int) -> None:
        if not os.read(fd, 4096):
            self._loop.remove(fd)
            self._owner_gone = True

    def _on_output(self, child: Child) -> None:
        if not child.output.pump():
            self._loop.remove(child.output.fileno())

    def _on_report(self, child: Child) -> None:
        changed = child.read_reports()
        self._row["bad_frames"] = sum(each.inbox.bad_frames for each in self._children.values())
        if changed:
            say(f"{child.name:<12}{child.said()}")

    def _on_exit(self, child: Child) -> None:
        for source in (child.pidfd, child.inbox.socket, child.output.fileno()):
            self._loop.remove(source)
        child.reap()
        if self._may_restart(child):
            say(f"{child.name:<12}{child.end()}; it is started again")
            self._restarts.append(time.monotonic())
            child.close()
            self._start(child.spec, child.inbox)
        elif self._death is None and child.failed:
            self._death = child
            say(f"{child.name:<12}{child.end()}")
        elif child.state is not State.STOPPED:
            say(f"{child.name:<12}stopped")

    def _may_restart(self, child: Child) -> bool:
        """Whether the server goes on without this process until another one has its place."""
        if child.role != "publisher" or not child.ready or not child.failed or self._interrupted:
            return False
        often = len(self._restarts) == MAX_RESTARTS
        return not often or time.monotonic() - self._restarts[0] > RESTARTS_WITHIN_S

    def _welcome(self, seconds: float) -> str:
        names = ", ".join(self._config.served_model_names)
        return f"fourstroke serves {names} on {self._listener.url} (ready in {seconds:.1f} s)"
