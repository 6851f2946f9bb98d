"""Runs the program that imports torch and tests it, and survives whatever becomes of that.

A processor or a driver that does not do what it should shows here: as a signal, or as a call that never comes back.
So the program is a process of its own, with a time limit, its output goes to files that nobody has to wait for, and
how it ended is a finding like any other.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass

from ...common.finding import Doing, Finding, read_line, red
from ..child import end_in_words

PROGRAM = "fourstroke.procs.executor.doctor"
SUBJECT = "self-tests"

_FIRST = "importing torch"
"""What the program does before it can say anything."""

_KILL_S = 5.0
"""How long the end of a killed process may take; one that hangs inside a driver has none."""


@dataclass(frozen=True, slots=True)
class End:
    """How a program ended: its status as Popen has it, None if it was killed at the time limit after `seconds`.

    `lines` are its standard output, `said` its standard error.
    """

    status: int | None
    seconds: float
    lines: Sequence[str]
    said: str


def examine(order: object, seconds: float, program: str = PROGRAM) -> list[Finding]:
    """The findings of the program, and one more if it did not end well. Never raises for what the program does."""
    return findings_of(run_program(order, seconds, program))


def findings_of(end: End) -> list[Finding]:
    """What a program has found before its end, and its end if that was none of its own choice."""
    findings, doing = [], _FIRST
    for line in end.lines:
        try:
            said = read_line(line)
        except ValueError:  # a library's own chatter, or half a line
            continue
        if isinstance(said, Doing):
            doing = said.doing
        else:
            findings.append(said)
    bad = _bad_end(end, doing)
    return findings if bad is None else [*findings, bad]


def _bad_end(end: End, doing: str) -> Finding | None:
    if end.status == 0:
        return None
    where = f"while {doing}"
    if end.status is None:
        advice = "look for errors of the driver with dmesg, or try again when the machine is less busy"
        return red(SUBJECT, f"came to no end within {end.seconds:.0f} s {where}", advice)
    words = end.said.strip().splitlines()
    last = f": {words[-1].strip():.300}" if words else ""
    return red(SUBJECT, f"the program {end_in_words(end.status)} {where}{last}", _remedy(end.status, doing))


def _remedy(status: int, doing: str) -> str:
    if status == -signal.SIGILL:
        return "install another torch: this one has instructions that the processor does not know"
    if status == -signal.SIGKILL:
        return "free memory, or raise the container's limit (docker: --memory)"
    if status < 0:
        return "look for errors of the driver with dmesg, and install the torch that fits the driver"
    if doing == _FIRST:
        return "install torch again: remove .venv and start launch/serve.sh (for ROCm with TORCH_INDEX_URL)"
    return f"report it with the output of python -m {PROGRAM}"


def run_program(order: object, seconds: float, program: str = PROGRAM) -> End:
    """Start the program with its order as JSON, and wait until it ends or `seconds` are over."""
    with tempfile.TemporaryFile("w+", errors="replace") as out, tempfile.TemporaryFile("w+", errors="replace") as err:
        process = subprocess.Popen(
            # -P: modules never come from the folder in which the command happens to be started.
            [sys.executable, "-P", "-m", program, json.dumps(order)],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,  # so that what it has started ends with it
        )
        try:
            status = _wait(process, seconds)
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
                _wait(process, _KILL_S)
        out.seek(0)
        err.seek(0)
        return End(status, seconds, out.read().splitlines(), err.read())


def _wait(process: subprocess.Popen[bytes], seconds: float) -> int | None:
    """The status of a process; None if it has not ended after so long."""
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None
