"""Servers whose processes are stand-ins: how tests start and end them."""

from __future__ import annotations

import contextlib
import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .server import Server, leftovers

LAUNCHER = Path(__file__).parent / "stand_in_launcher.py"
GOOD = {"executor0": "obey", "scheduler0": "obey", "ingest0": "obey"}


def start(behaviours: dict[str, str], fds: tuple[int, ...] = (), **fields: Any) -> Server:
    """Start a launcher over stand-ins, on a free port unless the fields of the Config say otherwise."""
    arguments = [json.dumps(behaviours), json.dumps({"port": 0, **fields}), *map(str, fds)]
    return Server([sys.executable, str(LAUNCHER), *arguments], pass_fds=fds)


@contextlib.contextmanager
def launcher(behaviours: dict[str, str] = GOOD, fds: tuple[int, ...] = (), **fields: Any) -> Iterator[Server]:
    """A launcher over stand-ins; however the test leaves it, nothing of it may be there at the end."""
    server = start(behaviours, fds, **fields)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.process.send_signal(signal.SIGTERM)
            server.process.send_signal(signal.SIGTERM)
            server.wait()
        server.close()
    assert leftovers(server.pid) == []


def spoiled(**behaviours: str) -> dict[str, str]:
    """Good stand-ins, but for these."""
    return GOOD | {f"{role}0": behaviour for role, behaviour in behaviours.items()}
