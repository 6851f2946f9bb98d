"""The life of a server: start every process, wait until all are ready, watch them, stop them in order.

One thread and one poll. What happens is written into the children and into three plain facts (stop
signals, a closed owner, an error); the phases below wait on those facts. The supervisor knows no roles but
ingest, whose processes get the listening sockets and are drained first, and the order of the strokes.

A process that dies, or hangs and is killed, is started again: when and how often, restarts.py decides, and watchdog.py
who hangs. The server stops when asked (SIGTERM, SIGINT or SIGHUP: requests end first, for up to the drain time-out; a
second signal skips that, a third kills), when its owner goes away (--stop-on-eof), or when a process is not to be
started again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence

from ..common.config import Config
from ..common.errors import FourstrokeError, ResourceError, ServerError
from ..common.types import SUPERVISOR, State, number_of
from ..ipc.board import Board
from ..ipc.messages import Drain
from ..ipc.segment import BOARD
from .child import Child
from .console import announce, say
from .crew import Crew
from .event_loop import EventLoop, StopSignals
from .listener import Listener
from .restarts import Fate, Restarts
from .surroundings import Surroundings, surroundings
from .topology import STROKES, ProcessSpec, Topology
from .vital_signs import board_in_words, is_stopped, signs_of
from .watchdog import LOOK_EVERY_S, Hang, Signs, Watchdog

STOP_TIMEOUT_S = 5.0
"""How long the processes may take together to end one after the other, when they are asked to."""

LAST_TIMEOUT_S = 1.0
"""How long those have that are left then and are asked all at once, before they are killed."""

KILLING_SIGNAL = 3
"""So many signals, and nothing is waited for any more."""


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
        self._board = Board(made.segments[BOARD].memory, topology.board)
        self._row = self._board.row(SUPERVISOR)
        self._loop = EventLoop()
        self._crew = Crew(config, topology, listener, made, self._loop, self._on_report, self._on_exit)
        self._restarts = Restarts(config.max_restarts)
        self._watchdog = Watchdog(config)
        self._to_start: set[str] = set()
        self._phase = State.STARTING
        self._owner_gone = False
        self._error: FourstrokeError | None = None
        self._last_words: list[str] = []

    def run(self, stop_on_eof: int | None) -> None:
        self._loop.add(self._signals.fileno(), self._on_signal)
        if stop_on_eof is not None:
            self._loop.add(stop_on_eof, lambda: self._on_owner(stop_on_eof))
        self._enter(State.STARTING)
        started_s = time.monotonic()
        try:
            for spec in self._topology.processes:
                self._crew.start(spec)
            self._look()
            if self._await_ready():
                self._restarts.served()
                self._enter(State.READY)
                announce(self._welcome(time.monotonic() - started_s))
                self._loop.until(lambda: self._interrupted)
                self._drain()
        finally:
            self._stop()
        self._tell_the_truth()

    # Phases

    def _enter(self, phase: State) -> None:
        self._phase = phase
        self._row.enter(phase)

    def _await_ready(self) -> bool:
        """True once every process is ready; false if the server is to stop before that."""
        timeout_s = self._config.start_timeout_s
        children = self._crew.children.values()
        if not self._loop.until(lambda: self._interrupted or all(child.ready for child in children), timeout_s):
            late = ", ".join(f"{child.name} ({child.text})" for child in children if not child.ready)
            raise ServerError(f"not ready within --start-timeout {timeout_s:g} s: {late}")
        return not self._interrupted

    def _drain(self) -> None:
        """Let the requests that run come to their end, unless there is a reason to hurry."""
        if self._in_a_hurry:
            return
        self._enter(State.DRAINING)
        self._listener.withdraw()
        ingests = [spec.name for spec in self._topology.processes if spec.role == "ingest"]
        for name in ingests:
            self._order_to_drain(self._crew.children[name])
        timeout_s = self._config.drain_timeout_s
        if not self._loop.until(lambda: self._in_a_hurry or all(map(self._drained, ingests)), timeout_s):
            say(f"fourstroke: some requests did not end within --drain-timeout {timeout_s:g} s and are cut off")

    def _order_to_drain(self, ingest: Child) -> None:
        ingest.may_end = True
        self._crew.order(ingest.name, Drain())

    def _drained(self, name: str) -> bool:
        return name not in self._to_start and self._crew.children[name].stopped

    def _stop(self) -> None:
        """End every process: SIGTERM to one stroke after the other; SIGKILL for what is left."""
        self._enter(State.STOPPED)
        self._loop.forget_timers()
        self._listener.close()
        last_signal = min(self._signals.count + 1, KILLING_SIGNAL)
        children = list(self._crew.children.values())

        def ended(some: Sequence[Child]) -> Callable[[], bool]:
            """Whether these have ended, or another signal asks not to wait for it."""
            return lambda: not any(child.alive for child in some) or self._signals.count >= last_signal

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
        self._crew.close()

    def _tell_the_truth(self) -> None:
        """Raise what went wrong, if anything did."""
        if self._error is not None:
            for line in self._last_words:
                say(f"    | {line}")
            raise self._error
        killed = [child.name for child in self._crew.children.values() if child.killed]
        if killed:
            raise ServerError(f"{', '.join(killed)} did not end when asked to and had to be killed")

    # Deaths

    def _on_exit(self, child: Child) -> None:
        if self._phase is State.DRAINING and child.role == "ingest" and not child.failed:
            self._listener.release(number_of(child.name))
        if not child.failed:
            if child.state is not State.STOPPED:
                say(f"{child.name:<12}stopped")
        elif self._phase is State.STOPPED:
            self._end(child.cause_of_death(), child)
        else:
            self._decide(child.spec, child.cause_of_death(), child)

    def _decide(self, spec: ProcessSpec, cause: str, child: Child | None) -> None:
        """What becomes of a process that died, or could not be started: then there is no `child`."""
        useless_s = child.hung.seconds if child is not None and child.hung else 0.0
        decision = self._restarts.died(spec.name, time.monotonic() - useless_s)
        if decision.fate is Fate.AGAIN:
            when = f" in {decision.delay_s:g} s" if decision.delay_s else ""
            say(f"{cause}; it is started again{when}")
            self._to_start.add(spec.name)
            self._loop.after(decision.delay_s, lambda: self._start_again(spec))
            return
        if decision.deaths > 1:
            cause = f"{cause}; it died {decision.deaths} times in a row"
        if decision.fate is Fate.END:
            self._end(cause, child)
        else:
            say(f"{cause} and is given up; the server goes on without {spec.name}")

    def _start_again(self, spec: ProcessSpec) -> None:
        self._to_start.discard(spec.name)
        try:
            child = self._crew.start(spec)
        except ResourceError as error:
            self._decide(spec, str(error), None)
            return
        if self._phase is State.DRAINING and child.role == "ingest":
            self._order_to_drain(child)

    def _end(self, cause: str, child: Child | None) -> None:
        """The server is to end for this; what comes afterwards is only said."""
        say(cause)
        if self._error is None:
            refused = child is not None and child.refused and self._phase is State.STARTING
            self._error = RefusalError(cause) if refused else ServerError(cause)
            self._last_words = [] if child is None else child.last_words()

    def _look(self) -> None:
        """Kill what hangs, and look again soon."""
        self._row.beat()
        self._loop.after(LOOK_EVERY_S, self._look)
        for name, hang in self._watchdog.look(time.monotonic(), self._signs()).items():
            child = self._crew.children[name]
            for line in board_in_words(self._board):
                say(f"    | {line}")
            stopped = " (a signal had stopped it)" if is_stopped(child.pid) else ""
            child.kill_hung(Hang(hang.cause + stopped, hang.seconds))

    def _signs(self) -> dict[str, Signs]:
        """What is seen of those that can hang. A server's first start has a time-out for all together."""
        first_start = self._phase is State.STARTING
        return {
            child.name: signs_of(child, self._board.row(child.name))
            for child in self._crew.children.values()
            if child.alive and not child.hung and not child.stopped and not (child.starting and first_start)
        }

    # The facts that the phases wait on, and the events that make them

    @property
    def _interrupted(self) -> bool:
        return self._signals.count > 0 or self._owner_gone or self._error is not None

    @property
    def _in_a_hurry(self) -> bool:
        return self._signals.count > 1 or self._owner_gone or self._error is not None

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

    def _on_report(self, child: Child) -> None:
        changed = child.read_reports()
        self._row["bad_frames"] = self._crew.bad_frames
        if changed:
            say(f"{child.name:<12}{child.said()}")
        if child.ready:
            self._restarts.ready(child.name, time.monotonic())

    def _welcome(self, seconds: float) -> str:
        names = ", ".join(self._config.served_model_names)
        return f"fourstroke serves {names} on {self._listener.url} (ready in {seconds:.1f} s)"
