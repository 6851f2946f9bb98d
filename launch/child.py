"""One started process as the supervisor sees it: its handle, its reports, what it prints, and its end in words."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Sequence

import zmq

from ..common.types import EXIT_REFUSED, State
from ..ipc.wire import Inbox
from .console import STDERR, write_line
from .topology import ProcessSpec
from .watchdog import Hang

LAST_REPORT_S = 1.0
"""How long a report may still be on its way when its sender is dead already."""

_TAIL_LINES = 20
_READ_BYTES = 1 << 16
_MAX_LINE_BYTES = 1 << 14
_MAX_READS_AT_THE_END = 64


class Child:
    """A running process. `state` and `text` are its last report; `status` is None until it has ended.

    `may_end`: it has been asked to; `killed`: it did not end when it was; `hung`: what it was killed for in its work.
    """

    def __init__(self, spec: ProcessSpec, arguments: list[str], inbox: Inbox, pass_fds: Sequence[int]) -> None:
        self.spec = spec
        self.name = spec.name
        self.role = spec.role
        self.inbox = inbox
        self.state = State.STARTING
        self.text = "no word yet"
        self.may_end = False
        self.killed = False
        self.hung: Hang | None = None
        self.status: int | None = None
        self._started_s = time.monotonic()
        self._popen = subprocess.Popen(
            # -P: modules never come from the folder in which the server happens to be started.
            [sys.executable, "-P", "-m", spec.module, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, **spec.env},
            pass_fds=pass_fds,
            start_new_session=True,  # a Ctrl-C at the terminal is for the launcher to handle
        )
        assert self._popen.stdout is not None
        self._pipe = self._popen.stdout
        self.output = Output(self._pipe.fileno())
        self.pidfd = os.pidfd_open(self._popen.pid)

    @property
    def alive(self) -> bool:
        return self.status is None

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def starting(self) -> bool:
        return self.state == State.STARTING

    @property
    def ready(self) -> bool:
        return self.state == State.READY

    @property
    def stopped(self) -> bool:
        """Whether it has done what it was asked to finish, or is gone."""
        return self.state == State.STOPPED or not self.alive

    def read_reports(self) -> bool:
        """Take in what the process reports; true if its state or text is another now."""
        before = self.state, self.text
        for report in self.inbox.drain():
            self.state, self.text = report.state, report.text
        return (self.state, self.text) != before

    def said(self) -> str:
        """Its last report for an operator, with the time that it took to get ready."""
        if not self.ready:
            return self.text
        seconds = f"ready in {time.monotonic() - self._started_s:.1f} s"
        return seconds if self.text in ("", "ready") else f"{seconds}: {self.text}"

    def terminate(self) -> None:
        """Ask the process to end."""
        self.may_end = True
        if self.alive:
            signal.pidfd_send_signal(self.pidfd, signal.SIGTERM)  # Popen's own would reap it

    def kill(self) -> None:
        """End the process and what it has started without asking, unless it has ended."""
        if self.alive:
            self.killed = True
            self._kill_group()

    def kill_hung(self, hang: Hang) -> None:
        """End a process that hangs, and what it has started."""
        self.hung = hang
        self._kill_group()

    def _kill_group(self) -> None:
        os.killpg(self._popen.pid, signal.SIGKILL)

    def reap(self) -> None:
        """Take in the end of the process, which has come: its status, last lines and last report.

        What it has started ends with it, and would write to the same memory. Nothing of it is open afterwards.
        """
        self._kill_group()  # before its number is free for others
        self.status = self._popen.wait()
        self.output.finish()
        self.read_reports()
        if self.status > 0 and self.state != State.FAILED:
            zmq.select([self.inbox.socket], [], [], LAST_REPORT_S)
            self.read_reports()
        os.close(self.pidfd)
        self._pipe.close()

    # Its end in words

    @property
    def failed(self) -> bool:
        """Whether it ended unasked, or asked but with an error."""
        if self.status is None:
            return False
        as_asked = self.status in (0, -signal.SIGTERM) or self.killed
        return not (self.may_end and as_asked)

    @property
    def refused(self) -> bool:
        """Whether it ended on purpose, for a reason that it reported."""
        return self.status == EXIT_REFUSED and self.state == State.FAILED

    def end(self) -> str:
        """How it ended."""
        assert self.status is not None
        return f"{self.hung.cause} and was killed" if self.hung else end_in_words(self.status)

    @property
    def _explained(self) -> bool:
        return self.hung is not None or self.state == State.FAILED

    def last_words(self) -> list[str]:
        """The last lines that it printed, if it died without a report."""
        return [] if self._explained else list(self.output.tail)

    def cause_of_death(self) -> str:
        """Why it ended, in one line."""
        if self.state == State.FAILED:
            return f"{self.name}: {self.text}"
        if self.hung:
            return f"{self.name} {self.end()}"
        last = next((line.strip() for line in reversed(self.output.tail) if line.strip()), None)
        return f"{self.name} {self.end()}" + (f"; its last line: {last}" if last else "")


def end_in_words(status: int) -> str:
    """An exit status as Popen has it, in words."""
    if status == 0:
        return "ended unasked (exit status 0)"
    if status > 0:
        return f"failed (exit status {status})"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    hint = " (did the machine run out of memory?)" if -status == signal.SIGKILL else ""
    return f"was killed by {name}{hint}"


class Output:
    """The pipe that is a child's standard output and error: each line goes on to ours, and the last ones are kept."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._rest = b""
        self.tail: deque[str] = deque(maxlen=_TAIL_LINES)

    def fileno(self) -> int:
        return self._fd

    def pump(self) -> bool:
        """Pass on what has come, at most 64 KiB; false once the pipe has ended."""
        data = self._read()
        if data:
            self._pass_on(data)
        return data != b""

    def finish(self) -> None:
        """Pass on what is left, when the child has ended. A grandchild that goes on writing is not awaited."""
        for _ in range(_MAX_READS_AT_THE_END):
            data = self._read()
            if not data:
                break
            self._pass_on(data)
        if self._rest:
            self._pass_on(b"\n")

    def _read(self) -> bytes | None:
        """What has come; None if that is nothing yet, empty at the end of the pipe."""
        try:
            return os.read(self._fd, _READ_BYTES)
        except BlockingIOError:
            return None

    def _pass_on(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _MAX_LINE_BYTES:
            lines.append(self._rest)
            self._rest = b""
        for line in lines:
            write_line(STDERR, line)
            self.tail.append(line.decode(errors="replace"))
