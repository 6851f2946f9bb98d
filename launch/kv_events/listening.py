"""Listens to a stream for `fourstroke kv-events check`, and asks for its past and for what has not come.

It keeps bare payloads, and says what is wrong with frames and answers. What is in the payloads is judged in check.py.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import zmq

from ...common.errors import BadMessage
from ...ipc.event_codec import decode_batch
from ...ipc.events import Batch
from ...ipc.replay import END, SEQUENCE_BYTES, read_answer, read_live, request_frames

_ANSWER_S = 10.0
"""So long an answer to a request for the past may take to begin or to go on."""

_MOST_MISSING = 1_000_000
"""With more batches missing an answer may begin with the state before those that are kept."""


@dataclass(slots=True)
class Heard:
    """What has come of the process that publishes now: payloads by their numbers, live and replayed, and what was
    wrong with the frames. `instead` are the numbers that were answered by something that stands for their batches;
    `may_miss`: `missing` is worth a look.
    """

    live: dict[int, bytes] = field(default_factory=dict)
    replayed: dict[int, bytes] = field(default_factory=dict)
    wrong: Counter[str] = field(default_factory=Counter)
    ended: bool = False
    longest_silence_s: float = 0.0
    restarts: int = 0
    instead: set[int] = field(default_factory=set)
    asked: int = 0
    last_live: int = -1
    may_miss: bool = False
    answered: list[int] = field(default_factory=list)

    @property
    def payloads(self) -> dict[int, bytes]:
        """All that has come, in order. An answer is consistent in itself: it goes before what was live."""
        return dict(sorted((self.live | self.replayed).items()))

    def missing(self) -> int | None:
        """The first number that has not come, though a later one has; None if there is no such number."""
        self.may_miss = False
        expected = 0
        for number in self.payloads:
            if number != expected and number not in self.instead:
                return expected
            expected = number + 1
        return None

    def take_live(self, frames: Sequence[bytes]) -> bool:
        """A published message has come; true if it is another process's."""
        try:
            number, payload = read_live(frames)
        except BadMessage:
            self.wrong["a message has not three frames, or its number not 8 bytes [1]"] += 1
            return False
        anew = number <= self.last_live
        if anew:
            self.restarts += 1
            self.live.clear()
            self.replayed.clear()
            self.instead.clear()
        self.may_miss |= anew or number != self.last_live + 1
        self.live[number], self.last_live = payload, number
        return anew

    def ask(self, start: int) -> list[bytes]:
        """The request for all from a number on."""
        self.asked, self.ended = start, False
        self.answered.clear()
        return request_frames(start)

    def take_answer(self, frames: Sequence[bytes]) -> None:
        """A message of an answer has come."""
        try:
            answer = read_answer(frames)
        except BadMessage:
            self.wrong[f"an answer has {len(frames)} frames, or its number not {SEQUENCE_BYTES} bytes [12]"] += 1
            return
        if answer is None:
            self.ended = self.may_miss = True
            if frames[-1] or frames[-2] != END:
                self.wrong["the end of an answer has a payload [12]"] += 1
            return
        number, payload = answer
        if self.answered:
            if number != self.answered[-1] + 1:
                self.wrong["an answer has a hole [16]"] += 1
        elif number != self.asked and not (number - self.asked > _MOST_MISSING and _read(payload).begins_cleared):
            self.wrong["an answer begins behind what was asked for [16]"] += 1
        self._look_for_what_stands_for(number, _read(payload))
        self.answered.append(number)
        self.replayed[number] = payload

    def _look_for_what_stands_for(self, number: int, batch: Batch) -> None:
        """A state that comes behind nothing but empty batches stands for all that were before, and so do those."""
        if batch.begins_cleared and all(_read(self.replayed[one]).is_empty for one in self.answered):
            self.instead.update((*self.answered, number))


def _read(payload: bytes) -> Batch:
    try:
        return decode_batch(payload)
    except BadMessage:
        return Batch(0.0, (), 0, unread=1)


def listen(pub: str, replay: str, topic: str, seconds: float) -> Heard:
    """Listen for so many seconds, and until the answers about the past and about what was missed have ended."""
    with zmq.Context() as context, context.socket(zmq.SUB) as live:
        live.linger = live.rcvhwm = 0
        live.subscribe(topic)
        live.connect(pub)
        return _Listener(context, live, replay).listen(seconds)


class _Listener:
    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], live: zmq.Socket[bytes], replay: str) -> None:
        self._context, self._live, self._replay = context, live, replay
        self._heard = Heard()
        self._answers: zmq.Socket[bytes] | None = None
        self._poller = zmq.Poller()
        self._poller.register(live, zmq.POLLIN)
        self._given_up: set[int] = set()
        self._answered_s = self._last_s = time.monotonic()

    def listen(self, seconds: float) -> Heard:
        heard, until_s = self._heard, time.monotonic() + seconds
        self._ask(0)
        while time.monotonic() < until_s or self._awaits_answer():
            for socket, _ in self._poller.poll(100):
                if socket is self._live:
                    self._hear()
                else:
                    self._answered_s = time.monotonic()
                    heard.take_answer(socket.recv_multipart())
            heard.longest_silence_s = max(heard.longest_silence_s, time.monotonic() - self._last_s)
            if heard.ended and heard.may_miss:
                self._ask_for_missing()
        self._close()
        return heard

    def _hear(self) -> None:
        self._last_s = time.monotonic()
        if self._heard.take_live(self._live.recv_multipart()):
            self._given_up.clear()
            self._ask(0)

    def _ask_for_missing(self) -> None:
        missing = self._heard.missing()
        if missing is not None and missing not in self._given_up:
            self._given_up.add(missing)
            self._ask(missing)

    def _awaits_answer(self) -> bool:
        return bool(self._replay) and not self._heard.ended and time.monotonic() - self._answered_s < _ANSWER_S

    def _ask(self, start: int) -> None:
        """Ask at a new socket: what is still answered there was asked of another process."""
        if not self._replay:
            return
        self._close()
        self._answers = self._context.socket(zmq.DEALER)
        self._answers.linger = self._answers.rcvhwm = 0
        self._answers.connect(self._replay)
        self._answers.send_multipart(self._heard.ask(start))
        self._poller.register(self._answers, zmq.POLLIN)
        self._answered_s = time.monotonic()

    def _close(self) -> None:
        if self._answers is not None:
            self._poller.unregister(self._answers)
            self._answers.close()
            self._answers = None
