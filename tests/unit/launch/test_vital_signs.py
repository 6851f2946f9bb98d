"""What is seen of processes, real ones of this machine, and of a board."""

import os
import signal
import subprocess
import sys

from fourstroke.common.machine import process_stat
from fourstroke.common.types import State
from fourstroke.ipc.board import Board, board_bytes
from fourstroke.launch.vital_signs import board_in_words, cpu_ticks, is_stopped


def test_cpu_time_rises_with_work() -> None:
    """A process that computes has more CPU time afterwards, by as much as its own clock says."""
    before, ticks = os.times(), cpu_ticks(os.getpid())
    while (after := os.times()).user + after.system - before.user - before.system < 0.1:
        pass
    spent = (cpu_ticks(os.getpid()) - ticks) / os.sysconf("SC_CLK_TCK")
    assert spent >= 0.09


def test_stopped() -> None:
    """A process that a signal has stopped is told from one that waits, and from one that is gone."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert not is_stopped(child.pid)
    child.send_signal(signal.SIGSTOP)
    os.waitpid(child.pid, os.WUNTRACED)
    assert is_stopped(child.pid)
    child.kill()
    child.communicate()
    assert not is_stopped(child.pid)
    assert cpu_ticks(child.pid) == 0
    assert process_stat(child.pid) is None


def test_a_board_in_words() -> None:
    """There is a line for each process, with all that is not 0; a step is told by its age."""
    board = Board(bytearray(board_bytes(2)), ["executor0", "scheduler0"])
    board.row("executor0").enter(State.READY)
    board.row("scheduler0").enter(State.DRAINING)
    row = board.row("executor0")
    row["step_began"], row["step"], row["step_rows"], row["step_seconds"] = row["heartbeat"], 12, 3, 2_500_000_000
    executor, scheduler = board_in_words(board)
    assert executor.startswith("executor0: ready, heart beat 0.")
    assert executor.endswith("in a step for 0.0 s, step 12, step_rows 3, step_seconds 2.5")
    assert scheduler.startswith("scheduler0: draining, heart beat 0.")
    assert scheduler.endswith(f"pid {os.getpid()}")
