"""A server as its operator sees it: a command, its exit status, what it prints. For tests with real processes.

Nothing here sleeps to wait: a server says on standard output when it is ready, and ends when it ends.
"""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx
import psutil

START_TIMEOUT_S = 180.0
STOP_TIMEOUT_S = 60.0
SHARED_MEMORY = Path("/dev/shm")
_SAMPLE = re.compile(r'fourstroke_(\w+){process="(\w+)"} (\S+)')


class Server:
    """A started server; `url` is known once it is ready. As a context manager it is stopped at the end, gently,
    and must exit with 0.
    """

    def __init__(self, command: Sequence[str], **popen: Any) -> None:
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **popen
        )
        self.url = ""
        self._errors = b""
        self._more = threading.Condition()
        self._reader = threading.Thread(target=self._read_errors, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def errors(self) -> str:
        """What it has written to standard error so far; all of it, if it has ended."""
        if self.process.poll() is not None:
            self._reader.join(STOP_TIMEOUT_S)
        return self._errors.decode(errors="replace")

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._more:
                self._errors += line
                self._more.notify_all()

    def wait_said(self, text: str, times: int = 1) -> None:
        """Wait until it has written something to standard error, so many times."""
        with self._more:
            said = self._more.wait_for(lambda: self._errors.count(text.encode()) >= times, START_TIMEOUT_S)
            assert said, self.errors

    def wait_ready(self) -> str:
        """Wait for the line that says that the server is ready, and return its URL."""
        assert self.process.stdout is not None
        readable, _, _ = select.select([self.process.stdout], [], [], START_TIMEOUT_S)
        line = self.process.stdout.readline().decode() if readable else ""
        assert " on " in line, f"the server did not get ready: {line!r}\n{self.errors}"
        self.url = line.split(" on ")[1].split()[0]
        return self.url

    def wait(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """Wait for its end and return the exit status."""
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError(f"the server did not end within {timeout_s} s\n{self.errors}") from None

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal, wait for the end, return the exit status."""
        self.process.send_signal(number)
        return self.wait()

    def children(self) -> dict[str, int]:
        """Pids of the processes of a server that is ready, by their roles, as `ps` shows them."""
        running = psutil.Process(self.pid).children()
        return {child.cmdline()[0].removeprefix("fourstroke: "): child.pid for child in running}

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            status = self.stop()
            assert kind is not None or status == 0, f"exit status {status}\n{self.errors}"
        self.close()

    def close(self) -> None:
        """Close the pipes of a server that has ended."""
        assert self.process.stdout is not None and self.process.stderr is not None
        self.process.stdout.close()
        self._reader.join()
        self.process.stderr.close()


def start_server(*flags: str, environment: dict[str, str] | None = None) -> Server:
    """Start `fourstroke serve` on a free port with further flags."""
    command = [sys.executable, "-P", "-m", "fourstroke", "serve", "--port=0", *flags]
    return Server(command, env={**os.environ, **(environment or {})})


def get(url: str, api_key: str | None = None) -> tuple[int, Any]:
    """Status and JSON of a GET; an error status is a value like any other."""
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {api_key}"} if api_key else {})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=30) as response:
            return response.status, json.loads(response.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def metrics(url: str) -> dict[tuple[str, str], float]:
    """What /metrics says, by the name of the metric and that of the process; the server may be on a Unix socket."""
    path = url.removeprefix("unix:")
    transport = httpx.HTTPTransport(uds=path) if path != url else None
    with httpx.Client(transport=transport, base_url=url if transport is None else "http://localhost") as client:
        text = client.get("/metrics", timeout=30).text
    return {(name, process): float(value) for name, process, value in _SAMPLE.findall(text)}


def wait_metric(url: str, name: str, process: str, holds: Callable[[float], bool], timeout_s: float = 30) -> None:
    """Ask for a metric until something holds for it."""
    deadline = time.monotonic() + timeout_s
    while not holds(value := metrics(url)[name, process]):
        assert time.monotonic() < deadline, f"{name} of {process} stays at {value}"


def leftovers(pid: int) -> list[str]:
    """Shared memory and socket folders that a launcher with this pid has left behind."""
    folders = {SHARED_MEMORY, Path("/tmp"), Path(os.environ.get("XDG_RUNTIME_DIR", "/tmp"))}
    return [str(path) for folder in folders for path in folder.glob(f"fourstroke-{pid}-*")]


def wait_gone(pids: Sequence[int], timeout_s: float) -> list[int]:
    """Wait until processes are gone, reaped or not ours to reap; return those that are not in time."""
    deadline = time.monotonic() + timeout_s
    left = []
    for pid in pids:
        try:
            fd = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        readable, _, _ = select.select([fd], [], [], max(0.0, deadline - time.monotonic()))
        os.close(fd)
        if not readable:
            left.append(pid)
    return left
