"""The publisher process: takes the changes of the KV cache from the scheduler until it is told to stop.

Started by the supervisor as `python -m fourstroke.procs.publisher.main <assignment>`.
"""

from __future__ import annotations

from ...common.types import State
from ...ipc.messages import KvBatch
from ..process import Process, run
from .turn import PublisherTurn


def serve(process: Process) -> None:
    """Run the publisher until the process is told to stop."""
    publisher = PublisherTurn(process.inbox(process.peer("scheduler"), KvBatch), process.row)
    process.report(State.READY, "")
    while not process.stopping:
        process.wait()
        publisher.run()


def main() -> None:
    run("publisher", serve)


if __name__ == "__main__":
    main()
