"""`fourstroke kernels`: starts the program that compiles the GPU kernels ahead of time, and tells how it ended.

Which kernels and architectures there are, and what must be true of them, that program knows.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack

from ..common.errors import ConfigError, ServerError, TargetMissed
from ..common.types import EXIT_FAILED, EXIT_REFUSED

PROGRAM = "fourstroke.procs.executor.kernels.proof"

_INTERPRETER = "TRITON_INTERPRET"
"""With this in the environment Triton interprets kernels and compiles none."""


def kernels(action: str, archs: Sequence[str], patterns: Sequence[str]) -> None:
    """Do "show", "report" or "check"; what the program finds goes to standard output as it finds it.

    Raises TargetMissed if a kernel is not as it must be, ConfigError if a name is wrong or Triton is not installed.
    """
    order = {"action": action, "archs": list(archs), "kernels": list(patterns)}
    program = subprocess.Popen(
        # -P: modules never come from the folder in which the command happens to be started.
        [sys.executable, "-P", "-m", PROGRAM, json.dumps(order)],
        env={name: value for name, value in os.environ.items() if name != _INTERPRETER},
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    with program, ExitStack() as interrupted:
        interrupted.callback(program.terminate)
        assert program.stderr is not None
        said = program.stderr.read().strip()
        interrupted.pop_all()
    if program.returncode == EXIT_REFUSED:
        raise ConfigError(said)
    if program.returncode == EXIT_FAILED and "\n" not in said:
        raise TargetMissed(said)
    if program.returncode:
        raise ServerError(f"the compilation ended with status {program.returncode}: {said[-2000:]}")
