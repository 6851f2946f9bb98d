"""The output process: opens its wires and the token rings, and turns tokens into text until it is told to stop.

Started by the supervisor as `python -m fourstroke.procs.output.main <assignment>`.
"""

from __future__ import annotations

from ...common.types import State
from ...ipc.messages import FROM_SCHEDULER
from ..detokenizer import TokenTable
from ..process import Process, run
from ..vocabulary import load_vocabulary
from .turn import OutputTurn


def serve(process: Process) -> None:
    """Run output until the process is told to stop."""
    process.report(State.STARTING, "reading the vocabulary")
    table = TokenTable.of(load_vocabulary(process.config.model))
    output = OutputTurn(
        {
            process.inbox(scheduler, *FROM_SCHEDULER): process.ring_from(scheduler)
            for scheduler in process.peers("scheduler")
        },
        {ingest: process.outbox(ingest) for ingest in process.peers("ingest")},
        table,
        process.row,
    )
    process.live()
    process.report(State.READY, f"{table.unknown} tokens in the vocabulary")
    while not process.stopping:
        process.wait(listen=not output.blocked)
        output.run()


def main() -> None:
    run("output", serve)


if __name__ == "__main__":
    main()
