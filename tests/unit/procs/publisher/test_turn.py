"""The publisher counts what arrives, and what did not."""

import pytest

from fourstroke.ipc.board import Board, board_bytes
from fourstroke.ipc.messages import KvBatch
from fourstroke.ipc.wire import memory_wire
from fourstroke.procs.publisher.turn import PublisherTurn


@pytest.mark.parametrize(
    "numbers, received, lost, bad",
    [
        ([0, 1, 2], 3, 0, 0),
        ([0, 3, 4], 3, 2, 0),
        ([7, 8], 2, 0, 0),
        ([5, 6, 0, 1], 4, 0, 0),
        ([5, 6, 6, 4, 7], 3, 0, 2),
        ([-1, 0], 1, 0, 1),
    ],
    ids=["in-order", "gap", "joined-late", "scheduler-restarted", "repeated", "negative"],
)
def test_numbering(numbers, received, lost, bad):
    """Gaps are counted as lost, a restart at 0 is none, a number that comes again is a bad message."""
    outbox, inbox = memory_wire("publisher0", KvBatch)
    row = Board(bytearray(board_bytes(1)), ["publisher0"]).row("publisher0")
    for number in numbers:
        outbox.send(KvBatch(number, b""))
    PublisherTurn(inbox, row).run()
    assert (row["kv_event_batches"], row["kv_event_batches_lost"], inbox.bad_frames) == (received, lost, bad)
