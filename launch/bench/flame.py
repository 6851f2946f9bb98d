"""A flame graph of the server's processes while something runs. py-spy draws it; it is looked for, never required."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ...common.errors import ConfigError, ServerError
from .costs import family

_SAMPLES_A_SECOND = 200
_DRAW_TIMEOUT_S = 60.0


def find_spy() -> str:
    """The path of py-spy, beside this Python or in the search path. Raises ConfigError."""
    found = shutil.which("py-spy", path=str(Path(sys.executable).parent)) or shutil.which("py-spy")
    if found is None:
        raise ConfigError("--flame needs py-spy: pip install py-spy")
    return found


@contextmanager
def flame_graph(spy: str, file: Path) -> Iterator[None]:
    """Sample the server that this process has started, with all its processes; afterwards `file` is an SVG.

    Raises ServerError with py-spy's last words if it could not, as where the system lets nobody look into others.
    """
    file.unlink(missing_ok=True)
    (launcher,) = (process.pid for name, process in family() if name == "launcher")
    spying = subprocess.Popen(
        [
            *(spy, "record", "--subprocesses", "--nonblocking", "--pid", str(launcher)),
            *("--rate", str(_SAMPLES_A_SECOND), "--format", "flamegraph", "--output", str(file)),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield
    finally:
        if spying.poll() is None:
            spying.send_signal(signal.SIGINT)  # it draws what it has
        try:
            _, said = spying.communicate(timeout=_DRAW_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            spying.kill()
            _, said = spying.communicate()
    if not file.exists():
        raise ServerError(f"py-spy drew nothing: {said.strip()[-500:]}")
