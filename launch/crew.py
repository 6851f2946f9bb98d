"""The processes of a server: starts them, puts new ones in the place of dead ones, talks to them.

It decides nothing. The supervisor says when, and is called when a process reports or ends.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import zmq

from ..common.config import Config
from ..common.errors import ResourceError
from ..common.types import SUPERVISOR, number_of
from ..ipc.messages import Report
from ..ipc.wire import Inbox, Lives, Outbox, address, open_inbox, open_outbox
from .child import Child
from .event_loop import EventLoop
from .listener import Listener
from .surroundings import Surroundings
from .topology import ProcessSpec, Topology, WireSpec, assignment


class Crew:
    """`children` has the last process of each name, dead or alive."""

    def __init__(
        self,
        config: Config,
        topology: Topology,
        listener: Listener,
        made: Surroundings,
        loop: EventLoop,
        on_report: Callable[[Child], None],
        on_exit: Callable[[Child], None],
    ) -> None:
        self.children: dict[str, Child] = {}
        self._config = config
        self._topology = topology
        self._listener = listener
        self._made = made
        self._loop = loop
        self._on_report = on_report
        self._on_exit = on_exit
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._lives: dict[str, int] = {}
        self._inboxes: dict[str, Inbox] = {}
        self._orders: dict[str, Outbox] = {}

    @property
    def bad_frames(self) -> int:
        return sum(inbox.bad_frames for inbox in self._inboxes.values())

    def start(self, spec: ProcessSpec) -> Child:
        """Start a process, in the place of the one of its name if that is dead. Raises ResourceError.

        The wires stay: their frames tell the lives at their ends, and these are only counted up.
        """
        self._lives[spec.name] = self._lives.get(spec.name, -1) + 1
        inbox = self._open_wires(spec.name)
        arguments, fds = [str(self._assign(spec))], []
        if spec.role == "ingest":
            fds = [self._listener.of_ingest(number_of(spec.name)).fileno()]
            arguments += ["--listen-fd", str(fds[0])]
        try:
            child = Child(spec, arguments, inbox, fds)
        except OSError as error:
            raise ResourceError(f"cannot start {spec.name}: {error.strerror}") from None
        self.children[spec.name] = child
        self._loop.add(inbox.socket, lambda: self._on_report(child))
        self._loop.add(child.output.fileno(), lambda: self._pump(child))
        self._loop.add(child.pidfd, lambda: self._bury(child))
        return child

    def _open_wires(self, name: str) -> Inbox:
        """The wire from a process; and open the one to it, where there is one. Both are opened once."""
        folder, lives = str(self._made.folder), Lives(0, lambda: self._lives[name])
        if name not in self._inboxes:
            where = address(folder, name, SUPERVISOR)
            self._inboxes[name] = open_inbox(self._context, where, name, Report, lives=lives)
            if WireSpec(SUPERVISOR, name) in self._topology.wires:
                self._orders[name] = open_outbox(self._context, address(folder, SUPERVISOR, name), name, lives)
        return self._inboxes[name]

    def _assign(self, spec: ProcessSpec) -> Path:
        """Write down for a process what it is to do."""
        path = self._made.folder / f"{spec.name}.json"
        told = assignment(
            spec,
            self._topology,
            self._config,
            supervisor_pid=os.getpid(),
            socket_folder=str(self._made.folder),
            owner=self._made.owner,
            life=self._lives[spec.name],
        )
        try:
            path.touch(mode=0o600)  # it may hold the API key
            told.save(path)
        except OSError as error:
            raise ResourceError(f"cannot write {path}: {error.strerror}") from None
        return path

    def order(self, name: str, message: object) -> None:
        """Send a message to the process that has this name now."""
        self._orders[name].send(message)

    def close(self) -> None:
        """Close the wires; all processes have ended."""
        self._context.destroy(linger=0)

    def _pump(self, child: Child) -> None:
        if not child.output.pump():
            self._loop.remove(child.output.fileno())

    def _bury(self, child: Child) -> None:
        for source in (child.pidfd, child.inbox.socket, child.output.fileno()):
            self._loop.remove(source)
        child.reap()
        self._on_exit(child)
