"""The scheduler's loop on in-memory wires: what does not fit is counted and dropped, and the rest goes on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest

from fourstroke.common.errors import ConfigError
from fourstroke.common.types import Finish
from fourstroke.ipc.messages import (
    FROM_EXECUTOR,
    FROM_INGEST,
    TO_EXECUTOR,
    Abort,
    Began,
    CacheKeys,
    Emit,
    Hello,
    Limits,
    RowError,
    Sampling,
    StepDone,
    Submit,
)
from fourstroke.ipc.plan import StepShape, slots_for_depth, step_slots
from fourstroke.ipc.request_ids import first_rid
from fourstroke.ipc.ring import TokenRing, ring_bytes
from fourstroke.ipc.wire import Inbox, Lives, Outbox, memory_wire
from fourstroke.procs.executor.fake import EOS_TOKEN_ID, VOCAB_SIZE, FakeRunner, continuation
from fourstroke.procs.scheduler.core import Scheduler
from fourstroke.procs.scheduler.main import SchedulerLoop
from fourstroke.procs.scheduler.outputs import MAX_TICKET_BYTES, Outputs, OutputWay
from fourstroke.procs.scheduler.policy import Policy

HELLO = Hello(16, 4, 64, VOCAB_SIZE, (EOS_TOKEN_ID,))
PROMPT = [20, 21, 22]


class Surroundings:
    """A loop with its wires, and the ends that other processes hold."""

    def __init__(self) -> None:
        shape, slots = StepShape(4, 32), slots_for_depth(2)
        memory, prompts, tokens = bytearray(shape.memory_bytes(slots)), bytearray(ring_bytes(256)), bytearray(4096)
        self.ingest, self.from_ingest = memory_wire("ingest0", *FROM_INGEST)
        self.executor, from_executor = memory_wire("executor0", *FROM_EXECUTOR)
        self.executors_life = 0
        lives = Lives(0, lambda: self.executors_life)
        self.from_executor = Inbox(from_executor.socket, "executor0", *FROM_EXECUTOR, lives=lives)
        to_executor, self.plans = memory_wire("scheduler0", *TO_EXECUTOR)
        to_output, self.emits = memory_wire("scheduler0", Emit)
        self.prompts, self.tokens = TokenRing(prompts), TokenRing(tokens)
        self.slots = step_slots(memory, shape, slots)
        self.runner = FakeRunner(self.slots, HELLO, 4)
        self.loop = SchedulerLoop(
            Policy(max_num_seqs=4, max_num_batched_tokens=32),
            step_slots(memory, shape, slots),
            {self.from_ingest: TokenRing(prompts)},
            self.from_executor,
            to_executor,
            Outputs([OutputWay(to_output, TokenRing(tokens))]),
        )
        self.executor.send(HELLO)

    def replace_executor(self, hello: Hello = HELLO) -> None:
        """The executor dies with the plans that it has not read, and another one is there."""
        self.runner = FakeRunner(self.slots, HELLO, 4)
        list(self.plans.drain())
        self.executors_life += 1
        self.executor = Outbox(self.executor.socket, "scheduler0", Lives(self.executors_life, lambda: 0))
        self.executor.send(hello)

    def submit(
        self,
        rid: int,
        max_tokens: int = 6,
        ticket: bytes = b"",
        place: int | None = None,
        generated: Sequence[int] = (),
    ) -> None:
        at = self.prompts.write(np.array([*PROMPT, *generated], np.int32)) if place is None else place
        assert at is not None
        sampling, limits = Sampling(0.0, 0, 1.0, 0.0), Limits(max_tokens, 0, True, ())
        self.ingest.send(
            Submit(
                (rid,),
                (0,),
                at,
                len(PROMPT),
                b"",
                CacheKeys(),
                sampling,
                limits,
                0,
                0.0,
                ticket,
                generated_tokens=len(generated),
            )
        )

    def run(self) -> dict[int, list[int]]:
        """Turn until nothing is left to do; the tokens of each request, all of which must have ended once."""
        tokens: dict[int, list[int]] = {}
        ended: list[int] = []
        for _ in range(50):
            self.loop.turn()
            for plan in self.plans.drain():
                self.executor.send(self.runner.run(plan))
            for emit in self.emits.drain():
                rids = np.frombuffer(emit.rids, np.int64).tolist()
                for rid, token in zip(rids, self.tokens.take(emit.tokens_at, emit.tokens).tolist(), strict=True):
                    tokens.setdefault(rid, []).append(token)
                ended += np.frombuffer(emit.ended.rids, np.int64).tolist()
        assert self.loop.core is not None and not self.loop.core.alive
        assert sorted(ended) == sorted(set(ended)) and set(tokens) <= set(ended)
        assert self.prompts.used == self.tokens.used == 0
        return tokens


@pytest.fixture
def around() -> Surroundings:
    return Surroundings()


def test_a_request_runs(around: Surroundings) -> None:
    """Prompt in, tokens out."""
    around.submit(1)
    assert around.run() == {1: continuation(PROMPT, 6)}


def test_nothing_is_taken_before_hello(around: Surroundings) -> None:
    """What ingest sends before the executor is there waits on the wire."""
    list(around.from_executor.drain())
    around.submit(1)
    around.loop.turn()
    assert around.loop.core is None
    around.executor.send(HELLO)
    assert around.run() == {1: continuation(PROMPT, 6)}


@pytest.mark.parametrize(
    "message",
    [
        Hello(17, 4, 64, VOCAB_SIZE, (EOS_TOKEN_ID,)),
        StepDone(0, 1, ()),
        StepDone(7, 0, ()),
        StepDone(-1, -1, ()),
        StepDone(0, 2, (RowError(1, "no such row"),)),
        StepDone(0, 2, (RowError(-1, "no such row"),)),
    ],
    ids=["hello-of-other-sizes", "wrong-slot", "wrong-step", "negative", "row-beyond", "row-below"],
)
def test_messages_of_an_executor_that_do_not_fit(around: Surroundings, message: object) -> None:
    """They are counted and dropped; the step that is open is settled by its own results."""
    around.submit(1)
    around.loop.turn()
    around.executor.send(message)
    around.loop.turn()
    assert around.from_executor.bad_frames == 1
    assert around.run() == {1: continuation(PROMPT, 6)}


def test_an_executor_that_starts_again(around: Surroundings) -> None:
    """Its Hello: what was open is lost, and the request goes on from its known tokens."""
    around.submit(1)
    for _ in range(3):
        around.loop.turn()
        for plan in around.plans.drain():
            around.executor.send(around.runner.run(plan))
    around.loop.turn()
    around.replace_executor()
    assert around.run() == {1: continuation(PROMPT, 6)}
    assert around.from_executor.bad_frames == 0


def test_an_executor_says_hello_twice(around: Surroundings) -> None:
    """To a scheduler that asked it when it was about to: nothing has happened between."""
    around.submit(1)
    around.loop.turn()
    around.executor.send(HELLO)
    assert around.run() == {1: continuation(PROMPT, 6)}
    assert around.loop.core.statistics.recomputed_tokens == around.from_executor.bad_frames == 0


def test_an_executor_of_other_sizes_takes_the_place(around: Surroundings) -> None:
    """The scheduler ends, in words: another one will know the new sizes from the beginning."""
    around.loop.turn()
    around.replace_executor(Hello(17, 4, 64, VOCAB_SIZE, (EOS_TOKEN_ID,)))
    with pytest.raises(ConfigError, match="other sizes"):
        around.loop.turn()


def test_an_ingest_that_starts_again(around: Surroundings) -> None:
    """Its requests of before are aborted, wherever they are, and no others."""
    other = first_rid(1, 0)
    for rid in (*range(1, 8), other):  # more than there are rows
        around.submit(rid, max_tokens=30)
    around.loop.turn()
    around.ingest.send(Began())
    around.submit(first_rid(0, 1))
    tokens = around.run()
    assert tokens[other] == continuation(PROMPT, 30)
    assert tokens[first_rid(0, 1)] == continuation(PROMPT, 6)
    assert not any(len(tokens.get(rid, ())) > 2 for rid in range(1, 8))


@pytest.mark.parametrize("generated", range(1, 6))
def test_a_request_that_goes_on(around: Surroundings, generated: int) -> None:
    """It is given its prompt and what was generated of it before, and generates the rest."""
    whole = continuation(PROMPT, 6)
    around.submit(1, generated=whole[:generated])
    assert around.run() == {1: whole[generated:]}


@pytest.mark.parametrize("place", [-3, 1, 2**62])
def test_a_prompt_that_is_not_in_the_ring(around: Surroundings, place: int) -> None:
    """The submit is dropped; the next one runs."""
    around.submit(1, place=place)
    around.submit(2)
    assert set(around.run()) == {2}
    assert around.from_ingest.bad_frames == 1


def test_a_request_id_that_is_in_use(around: Surroundings) -> None:
    """The second submit is dropped, and its prompt leaves the ring; the first request does not notice."""
    around.submit(1)
    around.loop.turn()
    around.submit(1)
    assert around.run() == {1: continuation(PROMPT, 6)}
    assert around.from_ingest.bad_frames == 1


def test_an_abort_of_an_unknown_request(around: Surroundings) -> None:
    """It changes nothing."""
    around.submit(1)
    around.loop.turn()
    around.ingest.send(Abort(99, Finish.ABORT, 0))
    assert around.run() == {1: continuation(PROMPT, 6)}


def test_many_large_tickets_travel_in_several_messages(around: Surroundings) -> None:
    """A frame has a largest size: the first words of one step are cut into portions, and none is lost."""
    for rid in range(4):
        around.submit(rid, max_tokens=1, ticket=bytes(MAX_TICKET_BYTES // 2 + 1))
    opened = []
    for _ in range(4):
        around.loop.turn()
        for plan in around.plans.drain():
            around.executor.send(around.runner.run(plan))
        for emit in around.emits.drain():
            assert sum(len(one.ticket) for one in emit.opened) <= 2 * MAX_TICKET_BYTES
            opened.append([one.rid for one in emit.opened])
    assert [rid for some in opened for rid in some] == [0, 1, 2, 3]
    assert len(opened) > 1


def test_the_books_are_compared_once_a_minute_and_counted_each_time(
    around: Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whenever the last request ends: what is cached makes the whole comparison long."""
    calls: list[str] = []
    for name in ("check", "check_counts"):
        monkeypatch.setattr(Scheduler, name, lambda core, name=name: calls.append(name))
    for rid, now in enumerate((100.0, 130.0, 159.0, 160.0, 200.0)):
        around.loop._clock = lambda now=now: now
        around.submit(rid)
        around.run()
    assert Counter(calls) == {"check_counts": 5, "check": 2}
