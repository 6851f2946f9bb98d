"""Wires, on ZeroMQ sockets and on their in-memory twin alike: order, bounds, and what is not a message."""

import tempfile
from dataclasses import dataclass

import pytest
import zmq

from fourstroke.common.errors import ResourceError
from fourstroke.common.types import KvKind
from fourstroke.ipc import codec, wire
from fourstroke.ipc.messages import Began, Drain, KvBatch, KvChange
from fourstroke.ipc.wire import LIVES, Inbox, Lives, Outbox, address, memory_wire, open_inbox, open_outbox


def batch(number: int, size: int = 0) -> KvBatch:
    """A message with this number, and so many bytes in it."""
    return KvBatch(1, 1, number, (KvChange(KvKind.REMOVED, bytes(size // 32 * 32)),))


def frame_of(message: object, sender: int = 0, receiver: int = 0) -> bytes:
    """A frame from this life of the sender, meant for that life of the receiver."""
    return LIVES.pack(sender, receiver) + codec.encode(message)


GOOD = frame_of(batch(1))


@dataclass
class Wire:
    """Both ends of a wire."""

    outbox: Outbox
    inbox: Inbox

    def receive(self, count: int) -> list[int]:
        """The numbers of the next messages, as many as asked for; fewer if they do not come in some seconds."""
        found: list[int] = []
        for _ in range(200):
            self.outbox.flush()
            self.wait()
            found += [batch.number for batch in self.inbox.drain(count - len(found))]
            if len(found) == count:
                break
        return found

    def wait(self) -> None:
        """Wait a moment for a frame; in memory it has arrived when it is sent."""
        if isinstance(self.inbox.socket, zmq.Socket):
            self.inbox.socket.poll(20)


@pytest.fixture
def folder():
    """A folder whose path is short enough for a socket."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="fs-") as path:
        yield path


@pytest.fixture(params=["zeromq", "memory"])
def pair(request, folder, monkeypatch):
    """A wire that carries KvBatch and holds few messages."""
    if request.param == "memory":
        yield Wire(*memory_wire("peer0", KvBatch, high_water_mark=4))
        return
    monkeypatch.setattr(wire, "HIGH_WATER_MARK", 4)
    with zmq.Context() as context:
        where = address(folder, "peer0", "me0")
        made = Wire(open_outbox(context, where, "me0"), open_inbox(context, where, "peer0", KvBatch))
        yield made
        made.outbox.close()
        made.inbox.close()


def fill(pair: Wire) -> int:
    """Send until the socket is full; how many messages that took."""
    sent = 0
    while pair.outbox.waiting < 3:
        pair.outbox.send(batch(sent, 8192))
        sent += 1
        assert sent < 100_000, "the wire is not bounded"
    return sent


def test_order(pair):
    """Messages arrive in the order of sending, and drain does not wait for more."""
    for number in range(3):
        pair.outbox.send(batch(number))
    assert pair.receive(3) == [0, 1, 2]
    assert list(pair.inbox.drain()) == []


def test_full(pair):
    """A full socket blocks nobody and loses nothing: what waits is sent by flush, in order."""
    sent = fill(pair)
    assert not pair.outbox.flush()
    assert 0 < pair.outbox.waiting < sent
    received: list[int] = []
    while len(received) < sent:
        more = pair.receive(1)
        assert more, "a message is lost"
        received += more
    assert received == list(range(sent))
    assert pair.outbox.waiting == 0


def test_limit(pair):
    """drain gives at most as many as asked for; the rest stays."""
    for number in range(3):
        pair.outbox.send(batch(number))
    assert pair.receive(1) == [0]
    assert pair.receive(2) == [1, 2]


@pytest.mark.parametrize(
    "frame", [b"", b"garbage", GOOD[:7], GOOD[:-1], frame_of(Drain())], ids=["", "a", "b", "c", "direction"]
)
def test_garbage(pair, frame, caplog):
    """What is no message of this wire is dropped and counted, the first one is logged, the next message comes."""
    for number in range(1, 3):
        pair.outbox.socket.send(frame)
        pair.outbox.send(batch(number))
        assert pair.receive(1) == [number]
    assert pair.inbox.bad_frames == 2
    assert [record.levelname for record in caplog.records] == ["WARNING"]


@dataclass
class Frames:
    """A socket on which these messages have arrived."""

    arrived: list[list[bytes]]

    def send(self, data: bytes, flags: int = 0) -> None:
        raise NotImplementedError

    def recv_multipart(self, flags: int = 0) -> list[bytes]:
        if not self.arrived:
            raise zmq.Again
        return self.arrived.pop(0)

    def close(self, linger: int | None = None) -> None:
        self.arrived.clear()


def test_multipart():
    """A message of several frames, or of none, is no message, even if its first frame is one."""
    inbox = Inbox(Frames([[GOOD, b""], [GOOD, GOOD], [], [GOOD]]), "peer0", KvBatch)
    assert [batch.number for batch in inbox.drain()] == [1]
    assert inbox.bad_frames == 3


def test_drain_counts_bad_frames_against_its_limit():
    """A flood of garbage cannot hold a loop."""
    inbox = Inbox(Frames([[b""]] * 10), "peer0", KvBatch)
    assert list(inbox.drain(4)) == []
    assert inbox.bad_frames == 4


@pytest.mark.parametrize("sender", range(4))
@pytest.mark.parametrize("receiver", range(4))
def test_lives(sender, receiver):
    """A frame from an earlier life of the sender, or for one of the receiver's, is passed over; a later one is none."""
    frames = Frames([[frame_of(batch(1), sender, receiver)]])
    inbox = Inbox(frames, "peer0", KvBatch, lives=Lives(1, lambda: 2))
    assert [batch.number for batch in inbox.drain()] == ([1] if (sender, receiver) == (2, 1) else [])
    assert inbox.bad_frames == (sender > 2 or receiver > 1)


def test_what_waits_for_the_dead_is_not_sent():
    """When the receiver has another life, what waited for the one before does not take up its room."""
    outbox, inbox = memory_wire("peer0", KvBatch, high_water_mark=1)
    life = 0
    outbox = Outbox(outbox.socket, "peer0", Lives(0, lambda: life))
    for number in range(3):
        outbox.send(batch(number))
    assert outbox.waiting == 2
    life = 1
    outbox.send(batch(3))
    inbox = Inbox(inbox.socket, "peer0", KvBatch, lives=Lives(1, lambda: 0))
    assert list(inbox.drain()) == []
    outbox.flush()
    assert [batch.number for batch in inbox.drain()] == [3]


def test_began():
    """The first word of a new life is passed over where nobody expects it, and is none that counts as bad."""
    for expected, heard in ((KvBatch,), [batch(1)]), ((KvBatch, Began), [Began(), batch(1)]):
        inbox = Inbox(Frames([[frame_of(Began())], [GOOD]]), "peer0", *expected)
        assert list(inbox.drain()) == heard
        assert inbox.bad_frames == 0


@pytest.fixture
def context():
    with zmq.Context() as context:
        yield context


def test_oversize(context, folder, monkeypatch):
    """A frame above the limit never arrives, and the wire works again after it."""
    monkeypatch.setattr(wire, "MAX_FRAME_BYTES", 1000)
    where = address(folder, "peer0", "me0")
    inbox, outbox = open_inbox(context, where, "peer0", KvBatch), open_outbox(context, where, "me0")
    outbox.send(batch(0, 2000))
    received: list[int] = []
    for number in range(1, 100):
        outbox.send(batch(number))
        if inbox.socket.poll(100):
            received = [batch.number for batch in inbox.drain()]
            break
    outbox.close()
    inbox.close()
    assert received
    assert 0 not in received


def test_sender_may_start_first(context, folder):
    """What was sent before the receiver bound is not lost."""
    where = address(folder, "peer0", "me0")
    outbox = open_outbox(context, where, "me0")
    outbox.send(batch(0))
    inbox = open_inbox(context, where, "peer0", KvBatch)
    assert Wire(outbox, inbox).receive(1) == [0]
    outbox.close()
    inbox.close()


def test_receiver_may_start_again(context, folder):
    """A new receiver binds where an old one was, and hears the sender without the sender's help."""
    where = address(folder, "peer0", "me0")
    outbox = open_outbox(context, where, "me0")
    open_inbox(context, where, "peer0", KvBatch).close()
    inbox = open_inbox(context, where, "peer0", KvBatch)
    for number in range(100):
        outbox.send(batch(number))
        if inbox.socket.poll(100):
            break
    received = [batch.number for batch in inbox.drain()]
    outbox.close()
    inbox.close()
    assert received


def test_path_that_is_too_long():
    """A path that no socket can have is refused with its name."""
    with pytest.raises(ResourceError, match="longer than 107 bytes"):
        address("/tmp/" + "x" * 100, "ingest0", "scheduler0")
