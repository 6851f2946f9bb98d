"""The publisher's sockets among readers who stall, leave, flood and send garbage: others notice nothing."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest
import zmq

from fourstroke.common.errors import ResourceError
from fourstroke.ipc.events import Stored
from fourstroke.ipc.replay import END, read_answer, request_frames
from fourstroke.procs.publisher.replays import MAX_READERS
from fourstroke.procs.publisher.sockets import PubSocket, ReplaySocket, bound_port

from ..unit.procs.publisher.made import Made

ANY = "tcp://127.0.0.1:0"
BIG = Stored((b"1" * 32,), None, b"\xff" * 4000, 1000)
"""An event of 5 KB."""
TURNS = 20_000


class Open:
    """A publisher on real sockets, whose turns the test makes; `hwm` batches may wait for a subscriber."""

    def __init__(self, context: zmq.Context, topic: bytes = b"t", hwm: int = 100, capacity: int = 5000) -> None:
        self._context = context
        self.pub, self.router = PubSocket(context, ANY, topic, hwm), ReplaySocket(context, ANY)
        self.made = Made(live=self.pub, router=self.router, capacity=capacity)
        self.row = self.made.row

    def subscriber(self, topic: bytes = b"", queue: int = 0) -> zmq.Socket:
        """One who has been heard of when this returns."""
        socket = self._context.socket(zmq.SUB)
        socket.rcvhwm = queue
        socket.rcvbuf = 4096
        socket.subscribe(topic)
        socket.rcvtimeo = 20_000
        socket.connect(f"tcp://127.0.0.1:{bound_port(self.pub.socket)}")
        return socket

    def reader(self, queue: int = 0) -> zmq.Socket:
        socket = self._context.socket(zmq.DEALER)
        socket.rcvhwm = queue
        socket.connect(f"tcp://127.0.0.1:{bound_port(self.router.socket)}")
        return socket

    def until(self, holds: Callable[[], bool]) -> None:
        """Turn until something holds."""
        for _ in range(TURNS):
            if holds():
                return
            self.router.socket.poll(1)
            self.made.now += 0.0001
            self.made.replays.run()
        raise AssertionError("it did not come to that")

    def answer(self, socket: zmq.Socket) -> list[int]:
        """The numbers of a whole answer."""
        found: list[int] = []
        ended = False

        def take() -> bool:
            nonlocal ended
            while not ended and socket.poll(0):
                answer = read_answer(socket.recv_multipart())
                ended = answer is None
                found.extend([] if answer is None else [answer[0]])
            return ended

        self.until(take)
        return found


@pytest.fixture
def context() -> Iterator[zmq.Context]:
    with zmq.Context() as made:
        yield made
        made.destroy(linger=0)


def heard(publisher: Open, *subscribers: zmq.Socket) -> None:
    """Publish until each of these has got something, so that all are connected."""
    missing = set(subscribers)
    for _ in range(TURNS):
        publisher.made.stream.take([BIG])
        missing -= {socket for socket in missing if socket.poll(1)}
        if not missing:
            return
    raise AssertionError("nothing is heard")


def test_topics(context: zmq.Context) -> None:
    """Who wants `foo` gets what is published as `foo`; who wants `bar` gets nothing."""
    publisher = Open(context, topic=b"foo")
    foo, bar = publisher.subscriber(b"foo"), publisher.subscriber(b"bar")
    heard(publisher, foo)
    frames = foo.recv_multipart()
    assert (len(frames), frames[0], len(frames[1])) == (3, b"foo", 8)
    assert not bar.poll(50)


def test_a_stalled_subscriber_hurts_nobody(context: zmq.Context) -> None:
    """His queue fills up, which is counted once or more; another one gets every batch, and sending never waits."""
    publisher = Open(context, hwm=500)
    stalled, reading = publisher.subscriber(queue=1), publisher.subscriber()
    heard(publisher, stalled, reading)
    numbers = [int.from_bytes(reading.recv_multipart()[1], "big")]
    for _ in range(3000):
        publisher.made.stream.take([BIG])
        while numbers[-1] + 100 < publisher.made.history.next:
            numbers.append(int.from_bytes(reading.recv_multipart()[1], "big"))
    while numbers[-1] + 1 < publisher.made.history.next:
        numbers.append(int.from_bytes(reading.recv_multipart()[1], "big"))
    assert numbers == list(range(numbers[0], publisher.made.history.next))
    assert publisher.row["kv_event_dropped_send"] >= 1
    reader = publisher.reader()
    reader.send_multipart(request_frames(0))
    assert publisher.answer(reader) == list(range(publisher.made.history.next))


def test_an_answer_to_one_who_does_not_drain(context: zmq.Context) -> None:
    """2,500 batches and the end, four times, though he begins to read late and has a short queue; live ones go on."""
    publisher = Open(context)
    for _ in range(2499):
        publisher.made.stream.take([BIG])
    reader = publisher.reader(queue=5)
    for times in range(4):
        reader.send_multipart(request_frames(0))
        publisher.until(lambda seen=times: publisher.row["kv_event_replay_requests"] > seen)
        for _ in range(50):
            publisher.made.replays.run()
            publisher.made.stream.take([BIG])
        assert publisher.answer(reader) == list(range(2500 + 50 * times))


def test_garbage_floods_and_strangers(context: zmq.Context) -> None:
    """Noise of any shape is counted; frames that are too large cut their sender off; a good reader is answered."""
    publisher, dice = Open(context), random.Random(1)
    stranger = publisher.reader()
    for _ in range(500):
        frame = [dice.randbytes(dice.choice([0, 1, 7, 9, 200])) for _ in range(dice.randint(1, 4))]
        if frame[0] or len(frame) != 2 or len(frame[1]) != 8:
            stranger.send_multipart(frame)
    stranger.send(b"no more")
    sent = publisher.row
    publisher.until(lambda: not publisher.router.socket.poll(20))
    assert sent["kv_event_bad_requests"] > 400
    large = publisher.reader()
    large.send_multipart([b"", bytes(1 << 20)])
    good = publisher.reader()
    good.send_multipart(request_frames(0))
    assert publisher.answer(good) == [0]
    assert publisher.row["kv_event_replay_requests"] == 1


def test_a_flood_of_readers(context: zmq.Context) -> None:
    """Many who ask and never read: no more than a bounded number is served, and all are given up."""
    publisher = Open(context)
    for _ in range(1000):
        publisher.made.stream.take([BIG])
    crowd = [publisher.reader(queue=1) for _ in range(MAX_READERS + 30)]
    for socket in crowd:
        socket.rcvbuf = 4096
        socket.send_multipart(request_frames(0))
    row = publisher.row
    publisher.until(lambda: row["kv_event_replay_requests"] + row["kv_event_bad_requests"] == len(crowd))
    assert len(publisher.made.replays) <= MAX_READERS
    for socket in crowd:
        socket.close(0)
    publisher.made.now += 31
    publisher.until(lambda: not len(publisher.made.replays))


def test_one_who_has_gone_before_his_answer(context: zmq.Context) -> None:
    publisher = Open(context)
    for _ in range(2000):
        publisher.made.stream.take([BIG])
    reader = publisher.reader(queue=1)
    reader.send_multipart(request_frames(0))
    publisher.until(lambda: publisher.row["kv_event_replay_requests"] == 1)
    reader.close(0)
    publisher.until(lambda: not len(publisher.made.replays))
    assert publisher.row["kv_event_replay_dropped"] == 0


def test_an_endpoint_that_is_taken(context: zmq.Context) -> None:
    """Is refused with its name."""
    publisher = Open(context)
    taken = f"tcp://127.0.0.1:{bound_port(publisher.pub.socket)}"
    with pytest.raises(ResourceError, match=taken):
        ReplaySocket(context, taken)


def test_the_end_is_the_last_frame(context: zmq.Context) -> None:
    """As a plain DEALER sees it."""
    publisher = Open(context, topic=b"foo")
    reader = publisher.reader()
    reader.send_multipart(request_frames(0))
    publisher.until(lambda: bool(reader.poll(0)))
    assert [len(frame) for frame in reader.recv_multipart()][:3] == [0, 1, 8]
    publisher.until(lambda: bool(reader.poll(0)))
    assert reader.recv_multipart() == [b"", b"", END, b""]
