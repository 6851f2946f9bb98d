"""Output on in-memory wires and a private ring: what arrives is served, what cannot be is counted."""

import numpy as np
import pytest

from fourstroke.common.types import Finish
from fourstroke.ipc import codec
from fourstroke.ipc.board import Board, board_bytes
from fourstroke.ipc.messages import NO_ENDINGS, Emit, Endings, Opened, Text, Ticket
from fourstroke.ipc.ring import TokenRing, ring_bytes
from fourstroke.ipc.wire import memory_wire
from fourstroke.procs.detokenizer import TokenTable
from fourstroke.procs.output.turn import OutputTurn
from fourstroke.procs.vocabulary import Vocabulary


class Ring:
    """A scheduler's and an ingest's view of output."""

    def __init__(self):
        memory = bytearray(ring_bytes(8))
        self.tokens = TokenRing(memory)
        self.to_output, self.inbox = memory_wire("output0", Emit)
        outbox, self.from_output = memory_wire("ingest0", Text)
        table = TokenTable.of(Vocabulary([b"a", b"b", b"c"], frozenset()))
        self.row = Board(bytearray(board_bytes(1)), ["output0"]).row("output0")
        self.turn = OutputTurn({self.inbox: TokenRing(memory)}, {"ingest0": outbox}, table, self.row)

    def emit(self, tokens, at=None, opened=(), ended=NO_ENDINGS):
        place = self.tokens.write(np.array(tokens, np.int32)) if at is None else at
        rids, counts = np.array([1], "<i8").tobytes(), np.array([len(tokens)], "<i4").tobytes()
        self.to_output.send(Emit(opened, rids, counts, place, len(tokens), ended))

    def deltas(self):
        self.turn.run()
        return [delta for text in self.from_output.drain() for delta in text.deltas]


@pytest.fixture
def ring():
    ring = Ring()
    ticket = codec.encode(Ticket("ingest0", ("cc",), False, True, 0))
    ring.to_output.send(Emit((Opened(1, 0, ticket),), b"", b"", 0, 0))
    return ring


def test_tokens_become_text(ring):
    """Emits of one turn are served in order, their tokens leave the ring, and the board counts them."""
    ring.emit([0, 1])
    ring.emit([2, 0])
    assert ring.deltas() == ["ab", "ca"]
    assert (ring.tokens.used, ring.row["detokenized_tokens"]) == (0, 4)


def test_emit_without_tokens_needs_no_place_in_the_ring(ring):
    """An end alone is served, wherever the ring stands."""
    ring.emit([0])
    ring.emit([2])
    rid, stop_token = np.array([1], "<i8").tobytes(), np.array([-1], "<i4").tobytes()
    ring.to_output.send(Emit((), b"", b"", 0, 0, Endings(rid, bytes([Finish.ABORT]), stop_token, ())))
    assert ring.deltas() == ["a", "", "c"]


@pytest.mark.parametrize("at", [-1, 1, 99, 2**62])
def test_emit_with_a_wrong_place(ring, at):
    """An Emit whose tokens are not in the ring is counted and dropped; the next one is served."""
    ring.emit([0, 0], at=at)
    ring.emit([1])
    assert ring.deltas() == ["b"]
    assert ring.inbox.bad_frames == 1


def test_garbage_on_the_wire(ring):
    """A frame that is no Emit is counted, and the loop goes on."""
    ring.to_output.socket.send(b"garbage")
    ring.emit([1])
    assert ring.deltas() == ["b"]
    assert ring.inbox.bad_frames == 1


def test_counters_of_the_board(ring):
    """Stop strings, and rows that come after them, are on the board."""
    ring.emit([2, 2])
    ring.emit([0])
    assert ring.deltas() == [""]
    assert (ring.row["stop_strings"], ring.row["unknown_requests"]) == (1, 1)


def test_two_schedulers():
    """Each has its own ring and books; the texts go to one ingest, and the board has the sums."""
    rings = [Ring(), Ring()]
    outbox, from_output = memory_wire("ingest0", Text)
    table = TokenTable.of(Vocabulary([b"a", b"b", b"c"], frozenset()))
    turn = OutputTurn({ring.inbox: ring.tokens for ring in rings}, {"ingest0": outbox}, table, rings[0].row)
    for ring, tokens in zip(rings, ([0, 1], [2]), strict=True):
        ticket = codec.encode(Ticket("ingest0", (), False, True, 0))
        ring.emit(tokens, opened=(Opened(1, 0, ticket),))
    turn.run()
    assert [text.deltas for text in from_output.drain()] == [("ab",), ("c",)]
    assert (turn.live, rings[0].row["detokenized_tokens"]) == (2, 3)


def test_schedulers_take_turns_when_ingest_is_behind():
    """However much one scheduler sends, the other is served as well."""
    rings = [Ring(), Ring()]
    outbox, from_output = memory_wire("ingest0", Text, high_water_mark=1)
    table = TokenTable.of(Vocabulary([b"a", b"b", b"c"], frozenset()))
    turn = OutputTurn({ring.inbox: ring.tokens for ring in rings}, {"ingest0": outbox}, table, rings[0].row)
    ticket = codec.encode(Ticket("ingest0", (), False, True, 0))
    for ring, token in zip(rings, (0, 1), strict=True):
        for number in range(8):
            ring.emit([token], opened=() if number else (Opened(1, 0, ticket),))
    heard = []
    for _ in range(3):
        turn.run()
        outbox.flush()
        heard += [text.deltas[0] for text in from_output.drain()]
        outbox.flush()
    assert set(heard) == {"a", "b"}
