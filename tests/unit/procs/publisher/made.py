"""A publisher without processes: its parts put together, a clock that a test moves, and stand-ins for its sockets."""

from __future__ import annotations

from collections import deque

from fourstroke.ipc.board import Board, board_bytes
from fourstroke.ipc.event_codec import decode_batch, encode_batch
from fourstroke.ipc.replay import read_answer, request_frames
from fourstroke.ipc.shadow import Shadow
from fourstroke.procs.publisher.answers import Message
from fourstroke.procs.publisher.history import History
from fourstroke.procs.publisher.replays import ReaderGone, Replays
from fourstroke.procs.publisher.stream import Stream


def row_of_a_publisher():
    return Board(bytearray(board_bytes(1)), ["publisher0"]).row("publisher0")


class Live:
    """Keeps what is published."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, bytes]] = []

    def send(self, number: int, payload: bytes) -> bool:
        self.sent.append((number, payload))
        return True


class Router:
    """Readers by name: each has room for so many messages, and may leave."""

    def __init__(self, room: int = 1 << 30) -> None:
        self._room = room
        self.requests: deque[Message] = deque()
        self.answers: dict[bytes, list[Message]] = {}
        self.gone: set[bytes] = set()

    def ask(self, name: bytes, start: int) -> None:
        self.requests.append([name, *request_frames(start)])

    def receive(self) -> Message | None:
        return self.requests.popleft() if self.requests else None

    def send(self, reader: bytes, message: Message) -> bool:
        if reader in self.gone:
            raise ReaderGone
        waiting = self.answers.setdefault(reader, [])
        if len(waiting) >= self._room:
            return False
        waiting.append(message)
        return True


class Made:
    """History, stream and replays on stand-ins; each look at `now` takes `tick_s`."""

    def __init__(
        self,
        *,
        capacity=100,
        form="map",
        replay_form="topic",
        room=1 << 30,
        encode=encode_batch,
        live=None,
        router=None,
        now=100.0,
        **stream,
    ):
        self.now, self.tick_s = now, 0.0
        self.row, self.live, self.router = row_of_a_publisher(), live or Live(), router or Router(room)
        self.history = History(capacity, 0, form)
        self.stream = Stream(
            self.history,
            self.live,
            self.row,
            rank=0,
            form=form,
            encode=encode,
            clock=self.clock,
            wall_clock=lambda: self.now,
            **stream,
        )
        self.replays = Replays(
            self.router, self.history, self.row, rank=0, form=replay_form, topic=b"t", clock=self.clock
        )

    def clock(self) -> float:
        self.now += self.tick_s
        return self.now

    def replay(self, start: int, name: bytes = b"reader") -> list[tuple[int, bytes]]:
        """The whole answer to a request, which must end in an END."""
        self.router.ask(name, start)
        self.replays.run()
        while len(self.replays):
            self.replays.run()
        *batches, end = [read_answer(message) for message in self.router.answers.pop(name)]
        assert end is None and None not in batches
        return batches


def numbers(batches: list[tuple[int, bytes]]) -> list[int]:
    return [number for number, _ in batches]


def state_after(batches: list[tuple[int, bytes]]) -> dict:
    """What a reader knows after these batches."""
    shadow = Shadow()
    for _, payload in batches:
        for event in decode_batch(payload).events:
            shadow.apply(event)
    return {medium: blocks for medium, blocks in shadow.media.items() if blocks}
