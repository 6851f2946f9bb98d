"""A server of one Python program's own: behind a Unix socket, gone when the program goes.

It is the very `fourstroke serve` of the command line. Its standard input is a pipe from this program: when
that closes, for whatever reason, the server stops.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
import threading
from collections import deque
from contextlib import ExitStack
from typing import TextIO

from ..common.errors import ConfigError, ServerError
from ..ipc.segment import owner_tag
from .options import EXIT_USAGE, KEY_VARIABLE
from .surroundings import make_socket_folder

_STOP_TIMEOUT_S = 30.0
"""More than a server needs to stop its processes, killing included."""

_TAIL_LINES = 20
_numbers = itertools.count()


class PrivateServer:
    """Starts a server with these flags of `fourstroke serve` and waits until it is ready.

    What it writes to standard error goes to `log`, if there is one. Raises ConfigError or ServerError with the
    launcher's last line if it does not get ready.
    """

    def __init__(self, flags: list[str], log: TextIO | None = None) -> None:
        self._folder = make_socket_folder(f"{owner_tag()}.llm{next(_numbers)}")
        path = self._folder / "http"
        self.url = f"unix:{path}"
        self._owner_pid = os.getpid()
        self._tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self._log = log
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "fourstroke", "serve", f"--unix-socket={path}", "--stop-on-eof=0", *flags],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            # The socket's folder keeps others out; a key in the environment is meant for a server with clients.
            env={name: value for name, value in os.environ.items() if name != KEY_VARIABLE},
            start_new_session=True,  # a Ctrl-C is this program's to handle
        )
        self._reader = threading.Thread(target=self._read_errors, daemon=True)
        self._reader.start()
        with ExitStack() as failed:
            failed.callback(self.close)
            self._await_ready()
            failed.pop_all()

    @property
    def pid(self) -> int:
        """The launcher's."""
        return self._process.pid

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._tail.append(line.rstrip())
            if self._log is not None:
                self._log.write(line)

    def _await_ready(self) -> None:
        assert self._process.stdout is not None
        if not self._process.stdout.readline():  # the launcher's one line says that it is ready
            status = self._process.wait()
            raise (ConfigError if status == EXIT_USAGE else ServerError)(self._last_line())

    def _last_line(self) -> str:
        self._reader.join(1)
        last = next((line for line in reversed(self._tail) if line), "the server ended without a word")
        return last.removeprefix("fourstroke: error: ")

    def cause_of_death(self, timeout_s: float) -> str | None:
        """Why the server ended, or None if it still runs after so many seconds."""
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None
        return self._last_line()

    def close(self) -> None:
        """Stop the server, if it still runs. May be called again; in a forked child it does nothing."""
        if os.getpid() != self._owner_pid:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        for pipe in (self._process.stdout, self._process.stderr):
            assert pipe is not None
            pipe.close()
        shutil.rmtree(self._folder, ignore_errors=True)
