"""Naive engines and outputs that may die at any moment, with all they hold, around the real half of ingest.

A token is a letter, and which one comes next is a function of a seed and a position. A scheduler computes every
request that it knows by one token a step; an output holds text back that may become a stop string. What they say
waits on wires that drop what the dead have said and what was meant for them, as the real ones do.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from fourstroke.common.types import Finish, State
from fourstroke.ipc import codec
from fourstroke.ipc.board import Board, Row, board_bytes
from fourstroke.ipc.logprobs import Words, pack
from fourstroke.ipc.messages import NO_LOGPROBS, Abort, Ending, ResetCache, Submit, Text, Ticket
from fourstroke.ipc.request_ids import first_rid, output_of
from fourstroke.ipc.ring import TokenRing, ring_bytes
from fourstroke.ipc.wire import Inbox, Lives, Outbox, Socket, memory_wire
from fourstroke.procs.ingest.lives import LivesWatch
from fourstroke.procs.ingest.router import Router
from fourstroke.procs.ingest.submit import Submitter
from fourstroke.procs.ingest.table import Table

RING_TOKENS = 64
_A, _LETTERS = ord("a"), 4


def token(seed: int, position: int) -> int:
    """The token at a position of a request's output."""
    return _A + (seed * 7 + position * position * 3 + position // 3) % _LETTERS


def words_of(tokens: list[int]) -> Words:
    """Log-probabilities, without alternatives, that tell the token and so the place."""
    return np.array([[one] for one in tokens], np.int32)


def answer(seed: int, most: int, stop: str) -> tuple[str, list[int], Finish, str | None]:
    """What a request says if nobody dies: its text, tokens, and how it ends."""
    tokens: list[int] = []
    while len(tokens) < most:
        tokens.append(token(seed, len(tokens)))
        text = "".join(map(chr, tokens))
        if stop and stop in text:
            return text[: text.index(stop)], tokens, Finish.STOP, stop
    return "".join(map(chr, tokens)), tokens, Finish.LENGTH, None


class Said(NamedTuple):
    """What a scheduler says to an output of one request; `opened` is its ticket if this is the first word."""

    rid: int
    opened: bytes
    tokens: list[int]
    finish: Finish
    scored: list[int]
    """Tokens of the prompt that have their log-probabilities now."""


class Frame(NamedTuple):
    """What waits on a wire, and between which lives."""

    sender: int
    receiver: int
    content: object


@dataclass
class Running:
    """A request in a scheduler."""

    submit: Submit
    seed: int
    prompt: list[int]
    made: int
    scored: int = 1
    opened: bool = False


@dataclass
class Spoken:
    """A request in an output: all its tokens, and how many characters have been told."""

    ticket: Ticket
    tokens: list[int]
    told: int = 0

    def text(self, ended: bool) -> tuple[str, bool]:
        """All text that is certain, and whether a stop string ended it."""
        text = "".join(map(chr, self.tokens))
        (stop,) = self.ticket.stop or ("",)
        if stop and stop in text:
            return text[: text.index(stop)], True
        held = next((n for n in range(len(stop) - 1, 0, -1) if text.endswith(stop[:n])), 0)
        return text if ended else text[: len(text) - held], False


@dataclass
class Engine:
    """A scheduler, with the end of the wire that ingest writes to."""

    row: Row
    ring: TokenRing
    inbox: Inbox
    requests: dict[int, Running] = field(default_factory=dict)
    heard: list[int] = field(default_factory=list)
    """The ids of all requests that it was ever given."""
    alive: bool = True


@dataclass
class Output:
    """An output: what it has not read yet, of all engines, and what ingest has not read."""

    row: Row
    inboxes: list[deque[Frame]]
    to_ingest: deque[Frame] = field(default_factory=deque)
    requests: dict[int, Spoken] = field(default_factory=dict)
    alive: bool = True


class World:
    """Ingest's table over engines and outputs."""

    def __init__(self, engines: int = 1, outputs: int = 1) -> None:
        names = [*(f"scheduler{at}" for at in range(engines)), *(f"output{at}" for at in range(outputs))]
        self.board = Board(bytearray(board_bytes(len(names))), names)
        self.now_s = 0.0
        ways = []
        self.engines: list[Engine] = []
        for row in self.board.of_role("scheduler"):
            row.enter(State.READY)
            ring = TokenRing(bytearray(ring_bytes(RING_TOKENS)))
            wire, _ = memory_wire("scheduler")
            outbox = Outbox(wire.socket, "scheduler", _lives_of(row))
            ways.append(Submitter("ingest0", ring, outbox, lambda: None, lambda: self.now_s))
            self.engines.append(Engine(row, ring, _read(wire.socket, 0)))
        self.outputs = [Output(row, [deque() for _ in self.engines]) for row in self.board.of_role("output")]
        watch = LivesWatch(self.board.of_role("scheduler"), self.board.of_role("output"))
        self.router = Router(ways, ready=lambda engine: self.engines[engine].alive)
        self.table = Table(self.router, first_rid(0, 0), 1000, None, watch, lambda: self.now_s)

    # What happens

    def step(self, at: int) -> None:
        """A scheduler reads what there is, and computes a token of each request."""
        engine = self.engines[at]
        if not engine.alive:
            return
        for message in engine.inbox.drain():
            if isinstance(message, Submit):
                self._take(engine, message)
            elif isinstance(message, ResetCache):
                self._say(at, Said(message.rid, message.ticket, [], Finish.STOP, []))
            elif message.rid in engine.requests:
                self._end(at, message)
        for rid, running in list(engine.requests.items()):
            self._compute(at, rid, running)

    def _take(self, engine: Engine, submit: Submit) -> None:
        run = engine.ring.take(submit.prompt_at, submit.prompt_tokens + submit.generated_tokens).tolist()
        prompt, generated = run[: submit.prompt_tokens], run[submit.prompt_tokens :]
        for rid, seed in zip(submit.rids, submit.seeds, strict=True):
            assert generated == [token(seed, position) for position in range(len(generated))]
            assert np.array(generated, np.int32).tobytes() == codec.decode(submit.ticket, Ticket).generated
            engine.heard.append(rid)
            engine.requests[rid] = Running(submit, seed, prompt, len(generated))

    def _end(self, at: int, abort: Abort) -> None:
        running = self.engines[at].requests.pop(abort.rid)
        if abort.reason is not Finish.STOP:
            self._say(at, Said(abort.rid, b"" if running.opened else running.submit.ticket, [], abort.reason, []))

    def _compute(self, at: int, rid: int, running: Running) -> None:
        """Two tokens of the prompt, if its log-probabilities are wanted; else a token of the output."""
        submit, scored, tokens = running.submit, list[int](), list[int]()
        if submit.sampling.prompt_logprobs != NO_LOGPROBS and running.scored < len(running.prompt):
            scored = running.prompt[running.scored : running.scored + 2]
            running.scored += len(scored)
        else:
            tokens = [token(running.seed, running.made)]
            running.made += 1
        ends = running.made >= submit.limits.max_tokens
        self._say(at, Said(
            rid, b"" if running.opened else submit.ticket, tokens, Finish.LENGTH if ends else Finish.NONE, scored
        ))  # fmt: skip
        running.opened = True
        if ends:
            del self.engines[at].requests[rid]

    def _say(self, at: int, said: Said) -> None:
        output = self.outputs[output_of(said.rid, len(self.outputs))]
        output.inboxes[at].append(Frame(self.engines[at].row.life, output.row.life, said))

    def speak(self, at: int, most: int = 1000) -> None:
        """An output reads some of what there is and tells ingest."""
        output = self.outputs[at]
        for engine, inbox in zip(self.engines, output.inboxes, strict=True):
            for _ in range(min(most, len(inbox)) if output.alive else 0):
                frame = inbox.popleft()
                if (frame.sender, frame.receiver) == (engine.row.life, output.row.life):
                    assert isinstance(frame.content, Said)
                    output.to_ingest.append(Frame(output.row.life, 0, _tell(output, frame.content)))

    def hear(self, at: int, most: int = 1000) -> None:
        """Ingest reads some of what an output has said."""
        output = self.outputs[at]
        for _ in range(min(most, len(output.to_ingest))):
            frame = output.to_ingest.popleft()
            if frame.sender == output.row.life:
                assert isinstance(frame.content, Text)
                self.table.deliver(frame.content)
        self.beat()

    def beat(self) -> None:
        """What ingest does by and by."""
        self.table.look()
        self.table.time_out(self.router.retry())
        self.table.end_overdue()

    def kill_engine(self, at: int) -> None:
        self.engines[at].alive = False
        self.engines[at].requests.clear()

    def kill_output(self, at: int) -> None:
        self.outputs[at].alive = False
        self.outputs[at].requests.clear()

    def replace_engine(self, at: int) -> None:
        """Another process takes the place of a scheduler."""
        engine = self.engines[at]
        if not engine.alive:
            engine.ring.forget()
            life = engine.row.life + 1
            engine.inbox = _read(engine.inbox.socket, life)
            engine.row.live(life)
            engine.alive = True

    def replace_output(self, at: int) -> None:
        output = self.outputs[at]
        if not output.alive:
            output.row.live(output.row.life + 1)
            output.alive = True

    def heal(self) -> None:
        """Put somebody into all empty places."""
        for at in range(len(self.engines)):
            self.replace_engine(at)
        for at in range(len(self.outputs)):
            self.replace_output(at)

    def turn(self) -> None:
        """Everybody does what there is to do."""
        for at in range(len(self.engines)):
            self.step(at)
        for at in range(len(self.outputs)):
            self.speak(at)
            self.hear(at)

    def finish(self, turns: int = 200) -> None:
        """Go on until all requests have ended."""
        self.heal()
        for _ in range(turns):
            self.turn()
            if not len(self.table):
                return
        raise AssertionError(f"{len(self.table)} choices do not end")


def _lives_of(peer: Row) -> Lives:
    """Those of the wire to a process: ingest is in its first life."""
    return Lives(0, lambda: peer.life)


def _read(socket: Socket, life: int) -> Inbox:
    """The end of the wire from ingest that a scheduler opens in one of its lives."""
    return Inbox(socket, "ingest0", Submit, Abort, ResetCache, lives=Lives(life, lambda: 0))


def _tell(output: Output, said: Said) -> Text:
    """What an output tells ingest; of a request that it does not know, nothing."""
    if said.opened:
        ticket = codec.decode(said.opened, Ticket)
        output.requests[said.rid] = spoken = Spoken(ticket, np.frombuffer(ticket.generated, np.int32).tolist())
        spoken.told = len(spoken.text(False)[0])
    known = output.requests.get(said.rid)
    if known is None:
        return Text(b"", b"", (), b"", ())
    cached = 5 + len(known.tokens)
    known.tokens += said.tokens
    text, stopped = known.text(said.finish is not Finish.NONE)
    delta, known.told = text[known.told :], len(text)
    endings: tuple[Ending, ...] = ()
    if stopped or said.finish is not Finish.NONE:
        finish, stop = (Finish.STOP, known.ticket.stop[0]) if stopped else (said.finish, None)
        endings = (Ending(said.rid, finish, stop, -1, len(known.tokens), ""),)
        del output.requests[said.rid]
    rid = np.array([said.rid], np.int64).tobytes()
    return Text(
        rid if said.tokens or delta else b"",
        np.array([len(said.tokens)], np.int32).tobytes() if said.tokens or delta else b"",
        (delta,) if said.tokens or delta else (),
        np.array(said.tokens, np.int32).tobytes(),
        endings,
        pack([(said.rid, words_of(said.tokens))]) if said.tokens else pack([]),
        pack([(said.rid, words_of(said.scored))]) if said.scored else pack([]),
        rid if said.opened else b"",
        np.array([cached], np.int32).tobytes() if said.opened else b"",
    )
