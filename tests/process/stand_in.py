"""A process of a server that does nothing but behave, well or badly, as the variable STAND_IN says."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from fourstroke.common.errors import ModelError
from fourstroke.common.types import State
from fourstroke.ipc.messages import Drain
from fourstroke.procs.process import Process, run


def obey(process: Process) -> None:
    """Get ready, drain when told, stop when told."""
    inbox = process.inbox("supervisor", Drain)
    _ready(process)
    while not process.stopping:
        process.wait()
        for _ in inbox.drain():
            process.report(State.STOPPED, "drained")


def busy(process: Process) -> None:
    """Never finish draining."""
    _ready(process)
    _until_stopped(process)


def never_ready(process: Process) -> None:
    process.report(State.STARTING, "loading weights 40 %")
    _until_stopped(process)


def deaf(process: Process) -> None:
    """Ignore SIGTERM."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _ready(process)
    while True:
        process.wait()


def compute(process: Process) -> None:
    """Be ended by SIGTERM in the middle of something that never looks around."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    process.report(State.STARTING, "loading weights 40 %")
    while True:
        pass


def say_goodbye(process: Process) -> None:
    """Say so at the end, for which ingest takes longest."""
    _ready(process)
    _until_stopped(process)
    if process.assignment.role == "ingest":
        process.wait(300)
    sys.stderr.write(f"{process.name} says goodbye\n")


def refuse(process: Process) -> None:
    raise ModelError("the weights are damaged")


def fail(process: Process) -> None:
    raise RuntimeError("a bug")


def crash(process: Process) -> None:
    """Die as native code dies, with a last word on standard error."""
    sys.stderr.write("the very last words\n")
    sys.stderr.flush()
    os._exit(7)


def killed(process: Process) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def leave(process: Process) -> None:
    """End without being asked to."""
    _ready(process)


def refuse_next(process: Process) -> None:
    """Be good; whoever takes the place of this one refuses."""
    if process.assignment.life:
        raise ModelError("the weights have gone")
    obey(process)


def late_next(process: Process) -> None:
    """Be good; the next one never gets ready, and the one after that is good again."""
    if process.assignment.life == 1:
        never_ready(process)
    obey(process)


def hang(process: Process) -> None:
    """Compute for 3 s in one step, which is no hang; then hang, and so do the next two, each in its way."""
    life = process.assignment.life
    if life == 3:
        obey(process)
        return
    _ready(process)
    process.row["step_began"] = time.monotonic_ns()
    if life == 0:
        _compute(3)
        process.row["step_began"] = 0
        process.report(State.READY, "the step has ended")
    elif life == 2:
        _compute(3600)
    signal.pause()


def _compute(seconds: float) -> None:
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        pass


def give_birth(process: Process) -> None:
    """Have a child of one's own that would outlive this process."""
    _ready(process)
    child = subprocess.Popen(["sleep", "3600"])
    process.report(State.READY, f"its child is {child.pid}")
    _until_stopped(process)


def fail_at_the_end(process: Process) -> None:
    _ready(process)
    _until_stopped(process)
    raise RuntimeError("a bug while stopping")


def _ready(process: Process) -> None:
    process.live()
    process.report(State.READY, "ready")


def _until_stopped(process: Process) -> None:
    while not process.stopping:
        process.wait()


BEHAVIOURS = {
    behaviour.__name__: behaviour
    for behaviour in (
        obey,
        busy,
        never_ready,
        deaf,
        compute,
        say_goodbye,
        refuse,
        fail,
        crash,
        killed,
        leave,
        refuse_next,
        late_next,
        hang,
        give_birth,
        fail_at_the_end,
    )
}

if __name__ == "__main__":
    run(Path(sys.argv[1]).stem.rstrip("0"), BEHAVIOURS[os.environ["STAND_IN"]])
