"""Is the server able to make a token, as the board tells? Reads rows, writes none."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

from ...common.types import State
from ...ipc.board import Board, Row

NEEDED = ("executor", "scheduler", "output")
"""The roles without which there is no token."""

SILENT_S = 60.0
"""A main loop that has not come round for so long is stuck."""

_NS = 1_000_000_000

STATUSES = ("ok", "starting", "draining", "degraded")


@dataclass(frozen=True, slots=True)
class Health:
    """`status` is one of STATUSES; `detail` names the processes behind it."""

    status: str
    detail: str = ""

    @property
    def ok(self) -> bool:
        return self.status == "ok"


@dataclass(frozen=True, slots=True)
class ModelLimits:
    """What the model allows, as the executors found it: each must be able to serve every request."""

    max_model_len: int
    vocab_size: int


def look(board: Board, draining: bool) -> Health:
    """The state of the server now."""
    if draining:
        return Health("draining")
    broken = [f"{name} has {why}" for name, row in board.rows.items() if (why := _broken(row))]
    if broken:
        return Health("degraded", "; ".join(broken))
    missing = [role for role in NEEDED if not board.of_role(role)]
    waiting = [name for name, row in board.rows.items() if row.role in NEEDED and row.state is not State.READY]
    if missing or waiting:
        return Health("starting", f"waiting for {', '.join(missing + waiting)}")
    return Health("ok")


def model_limits(board: Board) -> ModelLimits:
    """The model's limits; right only while the server is ready."""
    rows = board.of_role("executor")
    return ModelLimits(min(row["max_model_len"] for row in rows), min(row["vocab_size"] for row in rows))


def _broken(row: Row) -> str:
    """What is wrong with a process, or "". A step that is too long is the launcher's to judge."""
    if row.role == "publisher":  # no request needs it, and it may be given up
        return ""
    if row.state in (State.FAILED, State.STOPPED):
        return row.state.name.lower()
    if row.state is State.READY and row.role in NEEDED:
        if not _exists(row["pid"]):
            return "died"
        in_a_step = row.role == "executor" and row["step_began"]
        if not in_a_step and time.monotonic_ns() - row["heartbeat"] > SILENT_S * _NS:
            return f"been silent for {SILENT_S:g} s"
    return ""


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
