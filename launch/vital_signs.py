"""What the launcher sees of a process from outside: its row of the board, and what the kernel says of it."""

from __future__ import annotations

import time

from ..common.machine import process_stat
from ..ipc.board import COLUMNS, Board, Row
from .child import Child
from .watchdog import Signs

_STATE, _USER_TICKS, _SYSTEM_TICKS = 0, 11, 12
"""Where they stand in what the kernel says."""


def signs_of(child: Child, row: Row) -> Signs:
    """How a process does. Where it is ready and no step runs, the kernel is not asked."""
    if child.starting:
        return Signs(child.pid, ready=False, stopped=is_stopped(child.pid))
    step = row["step_began"] if child.role == "executor" else 0
    return Signs(child.pid, True, row["heartbeat"], step, cpu_ticks(child.pid) if step else 0)


def cpu_ticks(pid: int) -> int:
    """CPU time of all threads of a process, in ticks of the kernel; 0 if it is gone."""
    stat = process_stat(pid)
    return 0 if stat is None else int(stat[_USER_TICKS]) + int(stat[_SYSTEM_TICKS])


def is_stopped(pid: int) -> bool:
    """Whether a signal, SIGSTOP for one, has stopped a process."""
    stat = process_stat(pid)
    return stat is not None and stat[_STATE] in ("T", "t")


def board_in_words(board: Board) -> list[str]:
    """All that stands on a board, a line for each process; what is 0 is left out."""
    now_ns = time.monotonic_ns()
    return [f"{name}: {', '.join(_row_in_words(row, now_ns))}" for name, row in board.rows.items()]


def _row_in_words(row: Row, now_ns: int) -> list[str]:
    words = [row.state.name.lower(), f"heart beat {(now_ns - row['heartbeat']) / 1e9:.1f} s ago"]
    for column in COLUMNS[row.role]:
        value = row[column.name]
        if column.name == "step_began" and value:
            words.append(f"in a step for {(now_ns - value) / 1e9:.1f} s")
        elif column.name not in ("state", "heartbeat", "step_began") and value:
            words.append(f"{column.name} {value / 1e9:.1f}" if column.in_nanoseconds else f"{column.name} {value}")
    return words
