"""All five strokes in one process, on in-memory wires: the real ingest table, scheduler loop and output, and
the fake executor, whose next token is a function of the whole history. As many of each as a test wants.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fourstroke.common.types import Finish, SamplingParams
from fourstroke.ipc.block_hash import chain
from fourstroke.ipc.board import Board, board_bytes
from fourstroke.ipc.loads import Loads, loads_bytes
from fourstroke.ipc.messages import FROM_EXECUTOR, FROM_INGEST, TO_EXECUTOR, CacheKeys, Emit, Ending, Hello, Text
from fourstroke.ipc.plan import StepShape, slots_for_depth, step_slots
from fourstroke.ipc.request_ids import first_rid
from fourstroke.ipc.ring import TokenRing, ring_bytes
from fourstroke.ipc.wire import memory_wire
from fourstroke.procs.detokenizer import TokenTable
from fourstroke.procs.executor.fake import EOS_TOKEN_ID, VOCAB_SIZE, FakeRunner, continuation
from fourstroke.procs.ingest.choices import EncodedPrompt, add_choices
from fourstroke.procs.ingest.live import LiveRequest
from fourstroke.procs.ingest.router import Router
from fourstroke.procs.ingest.submit import Submitter
from fourstroke.procs.ingest.table import Table
from fourstroke.procs.output.turn import OutputTurn
from fourstroke.procs.scheduler.announcer import Announcer
from fourstroke.procs.scheduler.main import Join, SchedulerLoop
from fourstroke.procs.scheduler.outputs import Outputs, OutputWay
from fourstroke.procs.scheduler.policy import Policy
from fourstroke.procs.vocabulary import Vocabulary

VOCABULARY = Vocabulary([f"<{token}>".encode() for token in range(VOCAB_SIZE)], frozenset({EOS_TOKEN_ID}))


def text_of(tokens: Sequence[int]) -> str:
    """The text of tokens in the ring's vocabulary."""
    return "".join(f"<{token}>" for token in tokens if token != EOS_TOKEN_ID)


@dataclass(slots=True)
class Answer:
    """What a client has of one choice."""

    text: str
    tokens: list[int]
    ending: Ending | None


class Ingest:
    """A table and a router, before the engines that are connected to it."""

    def __init__(self, number: int, ingests: int, engines: list[Engine], outputs: int, high_water_mark: int) -> None:
        self.name = f"ingest{number}"
        loads = Loads(engines[0].loads, ingests, len(engines), number)
        self.router = Router([engine.submitters[number] for engine in engines], loads, number)
        self.table = Table(self.router, first_rid(number, 0), 1 << 20)
        wires = [memory_wire(f"output{one}", Text, high_water_mark=high_water_mark) for one in range(outputs)]
        self.from_outputs = [outbox for outbox, _ in wires]
        self.texts = [inbox for _, inbox in wires]

    def turn(self) -> None:
        for inbox in self.texts:
            for text in inbox.drain():
                self.table.deliver(text)
        self.router.retry()


class Engine:
    """A scheduler with its executor, between the wires of the ingests and those of the outputs."""

    def __init__(
        self,
        number: int,
        policy: Policy,
        hello: Hello,
        prompt_ring: int,
        token_ring: int,
        high_water_mark: int,
        join: Join | None,
        ingests: int,
        outputs: int,
        loads: bytearray,
        announcer: Announcer | None,
    ) -> None:
        self.loads = loads
        name = f"scheduler{number}"
        rows, drafts = policy.max_num_seqs, policy.drafts
        shape = StepShape(rows, policy.max_num_batched_tokens, drafts)
        slots = slots_for_depth(policy.pipeline_depth)
        steps = bytearray(shape.memory_bytes(slots))
        prompts = [bytearray(ring_bytes(prompt_ring)) for _ in range(ingests)]
        tokens = [bytearray(ring_bytes(token_ring)) for _ in range(outputs)]

        asking = [memory_wire(f"ingest{one}", *FROM_INGEST, high_water_mark=high_water_mark) for one in range(ingests)]
        to_executor, self._plans = memory_wire(name, *TO_EXECUTOR, high_water_mark=high_water_mark)
        self._to_scheduler, from_executor = memory_wire("executor", *FROM_EXECUTOR, high_water_mark=high_water_mark)
        telling = [memory_wire(name, Emit, high_water_mark=high_water_mark) for _ in range(outputs)]

        self._runner = FakeRunner(step_slots(steps, shape, slots), hello, rows, drafts=drafts)
        self.emits = [inbox for _, inbox in telling]
        self.token_rings = [TokenRing(memory) for memory in tokens]
        self.submitters = [
            Submitter(f"ingest{one}", TokenRing(prompts[one]), outbox, lambda: None)
            for one, (outbox, _) in enumerate(asking)
        ]
        self.scheduler = SchedulerLoop(
            policy,
            step_slots(steps, shape, slots),
            {inbox: TokenRing(memory) for (_, inbox), memory in zip(asking, prompts, strict=True)},
            from_executor,
            to_executor,
            Outputs(
                [OutputWay(outbox, TokenRing(memory)) for (outbox, _), memory in zip(telling, tokens, strict=True)]
            ),
            join=join,
            announcer=announcer,
        )
        self.outboxes = (to_executor, self._to_scheduler, *(outbox for outbox, _ in (*asking, *telling)))
        self.inboxes = (self._plans, from_executor, *(inbox for _, inbox in (*asking, *telling)))
        self._to_scheduler.send(hello)

    def turn_executor(self) -> None:
        for plan in self._plans.drain():
            self._to_scheduler.send(self._runner.run(plan))

    @property
    def settled(self) -> bool:
        core = self.scheduler.core
        return core is not None and not core.alive and not self.scheduler.output_is_behind

    def check_empty(self) -> None:
        """No block, row or ring space is held."""
        core = self.scheduler.core
        assert core is not None
        core.check()
        assert core.pool.free == core.pool.size
        assert not any(submitter.ring_tokens for submitter in self.submitters)
        assert not any(ring.used for ring in self.token_rings)


class Ring:
    """A server without sockets. `turn` gives every stroke one turn; `run` goes on until all requests ended.

    `scheduler`, `submitter` and `token_ring` are those of the first engine, `router`, `table` and `output` the first
    of theirs.
    """

    def __init__(
        self,
        *,
        engines: int = 1,
        ingests: int = 1,
        outputs: int = 1,
        rows: int = 8,
        budget: int = 64,
        depth: int = 2,
        blocks: int = 64,
        headroom: int = 0,
        block_size: int = 4,
        max_model_len: int = 256,
        prompt_ring: int = 1024,
        token_ring: int = 1024,
        high_water_mark: int = 1024,
        drafts: int = 0,
        join: Join | None = None,
        announcer: Announcer | None = None,
        **policy: object,
    ) -> None:
        """`policy` are further fields of Policy; the prefix cache is on unless they say otherwise. `announcer`: of the
        first engine.
        """
        common = Policy(
            max_num_seqs=rows,
            max_num_batched_tokens=budget,
            pipeline_depth=depth,
            headroom_lookahead=headroom,
            drafts=drafts,
            **policy,
        )
        hello = Hello(blocks, block_size, max_model_len, VOCAB_SIZE, (EOS_TOKEN_ID,))
        loads = bytearray(loads_bytes(ingests, engines))
        self.engines = [
            Engine(
                number,
                common,
                hello,
                prompt_ring,
                token_ring,
                high_water_mark,
                join,
                ingests,
                outputs,
                loads,
                None if number else announcer,
            )
            for number in range(engines)
        ]
        self.scheduler, self.submitter = self.engines[0].scheduler, self.engines[0].submitters[0]
        self.token_ring = self.engines[0].token_rings[0]
        self.ingests = [Ingest(number, ingests, self.engines, outputs, high_water_mark) for number in range(ingests)]
        names = [f"output{number}" for number in range(outputs)]
        self.board = Board(bytearray(board_bytes(outputs)), names)
        self.max_model_len = max_model_len
        self.router, self.table = self.ingests[0].router, self.ingests[0].table
        self.outputs = [
            OutputTurn(
                {engine.emits[number]: engine.token_rings[number] for engine in self.engines},
                {ingest.name: ingest.from_outputs[number] for ingest in self.ingests},
                TokenTable.of(VOCABULARY),
                self.board.row(name),
            )
            for number, name in enumerate(names)
        ]
        self.output = self.outputs[0]
        self._outboxes = (
            *(outbox for ingest in self.ingests for outbox in ingest.from_outputs),
            *(outbox for engine in self.engines for outbox in engine.outboxes),
        )
        self._inboxes = (
            *(inbox for ingest in self.ingests for inbox in ingest.texts),
            *(inbox for engine in self.engines for inbox in engine.inboxes),
        )
        self.live: list[LiveRequest] = []
        self._block_size = block_size

    def submit(self, prompt: Sequence[int], ingest: int = 0, **params: object) -> LiveRequest:
        """A client's request to an ingest. EOS is ignored unless the parameters say otherwise."""
        table = self.ingests[ingest].table
        sampling = SamplingParams(**{"ignore_eos": True, "temperature": 0.0, "max_tokens": 16, **params})
        request = LiveRequest(
            f"request-{len(self.live)}",
            sampling.stop,
            sampling.include_stop_str_in_output,
            sampling.skip_special_tokens,
            keys=CacheKeys(salt=sampling.cache_salt or ""),
        )
        tokens = np.array(prompt, np.int32)
        encoded = EncodedPrompt(tokens, chain(tokens, self._block_size, request.keys, ()))
        add_choices(request, [encoded], sampling, table, self.max_model_len)
        self.live.append(request)
        table.open(request)
        return request

    def turn_ingest(self) -> None:
        for ingest in self.ingests:
            ingest.turn()

    def turn_executor(self) -> None:
        for engine in self.engines:
            engine.turn_executor()

    def turn_scheduler(self) -> None:
        for engine in self.engines:
            engine.scheduler.turn()

    def turn(self) -> None:
        self.turn_ingest()
        self.turn_scheduler()
        self.turn_executor()
        for output in self.outputs:
            output.run()
        for outbox in self._outboxes:
            outbox.flush()

    def run(self, turns: int = 20_000) -> None:
        """Turn until every request has ended; then nothing may be held anywhere."""
        quiet = 0
        for _ in range(turns):
            self.turn()
            quiet = quiet + 1 if self.settled and not any(len(ingest.table) for ingest in self.ingests) else 0
            if quiet > len(self._outboxes):  # what was on the wires has gone all the way round
                self.check_empty()
                return
        raise AssertionError(f"requests are left after {turns} turns")

    @property
    def settled(self) -> bool:
        return all(engine.settled for engine in self.engines)

    def check_empty(self) -> None:
        """No block, row, ring space or message is held, and no frame was bad."""
        for engine in self.engines:
            engine.check_empty()
        assert not any(self.router.work)
        assert not any(outbox.waiting for outbox in self._outboxes)
        assert [output.live for output in self.outputs] == [0] * len(self.outputs)
        assert [inbox.bad_frames for inbox in self._inboxes] == [0] * len(self._inboxes)


def answer(request: LiveRequest, index: int = 0) -> Answer:
    """What the client of a request has got so far."""
    choice = request.choices[index]
    return Answer(choice.mail, np.frombuffer(bytes(choice.generated), np.int32).tolist(), choice.ending)


def check_answer(request: LiveRequest, prompt: Sequence[int], max_tokens: int) -> None:
    """The answer of a request that ran to its length is the plain continuation of its prompt."""
    got = answer(request)
    expected = continuation(list(prompt), max_tokens)
    assert got.tokens == expected
    assert got.text == text_of(expected)
    assert got.ending is not None and got.ending.finish is Finish.LENGTH
    assert got.ending.tokens == max_tokens
