"""The process around the runner, on in-memory wires: hello, readiness, plans in order, the board."""

import subprocess
import sys
from pathlib import Path

import pytest

from fourstroke.common.config import Config
from fourstroke.common.errors import ConfigError
from fourstroke.common.types import State, TransferAction, TransferOutcome
from fourstroke.ipc.board import Board, board_bytes
from fourstroke.ipc.messages import (
    FROM_EXECUTOR,
    TO_EXECUTOR,
    KvTransfer,
    NewRow,
    StepDone,
    StepPlan,
    TransferReport,
)
from fourstroke.ipc.plan import LAST, SAMPLES, StepShape, slots_for_depth, step_slots
from fourstroke.ipc.segment import steps_name
from fourstroke.ipc.wire import Inbox, Outbox, memory_wire
from fourstroke.procs.executor.loop import config_of
from fourstroke.procs.executor.main import serve

from .driver import GREEDY, Driver, executor_config
from .tiny import CONTEXT, VOCAB


class StandIn:
    """What serve needs of a Process. Each wait is a turn of the test, the last of which ends the loop."""

    def __init__(self, config: Config, turns: list[list[StepPlan | KvTransfer]]) -> None:
        self.config = config
        self.stopping = False
        self.reports: list[tuple[State, str]] = []
        self.row = Board(bytearray(board_bytes(1)), ["executor0"]).row("executor0")
        shape = StepShape(config.max_num_seqs, config.max_num_batched_tokens, config.num_speculative_tokens)
        slots = slots_for_depth(config.pipeline_depth)
        self._steps = bytearray(shape.memory_bytes(slots))
        self.slots = step_slots(self._steps, shape, slots)
        self.to_executor, self._inbox = memory_wire("scheduler0", *TO_EXECUTOR)
        self._outbox, self.from_executor = memory_wire("scheduler0", *FROM_EXECUTOR)
        self._turns = turns

    def peer(self, role: str) -> str:
        return f"{role}0"

    def inbox(self, peer: str, *expected: type) -> Inbox:
        assert (peer, expected) == ("scheduler0", TO_EXECUTOR)
        return self._inbox

    def outbox(self, peer: str) -> Outbox:
        return self._outbox

    def memory(self, name: str) -> memoryview:
        assert name == steps_name("scheduler0")
        return memoryview(self._steps)

    def live(self) -> None:
        """It lives."""

    def report(self, state: State, text: str) -> None:
        self.reports.append((state, text))

    def wait(self) -> None:
        if not self._turns:
            self.stopping = True
            return
        for message in self._turns.pop(0):
            self.to_executor.send(message)


def test_serve_runs_plans_and_tells_the_board(tiny_model: Path) -> None:
    """Two plans that arrive together run in order; results lie in their slots, counts on the board."""
    config = executor_config(tiny_model, max_model_len=CONTEXT)
    expected = Driver(config).generate([[1, 2, 3]], 2)[0]
    plans = [StepPlan(1, 0, 1, 3, 1, (NewRow(4, 0, GREEDY),)), StepPlan(2, 1, 1, 0, 0, ())]
    process = StandIn(config, [[], plans, []])
    first, second = process.slots[:2]
    first.row[0], first.count[0], first.flags[0], first.tokens[:3] = 4, 3, SAMPLES, [1, 2, 3]
    first.block_row[0], first.block_index[0], first.block_id[0] = 4, 0, 9
    second.row[0], second.start[0], second.count[0], second.flags[0] = 4, 3, 1, SAMPLES | LAST

    serve(process)  # type: ignore[arg-type]

    hello, *dones = process.from_executor.drain()
    assert (hello.num_blocks, hello.vocab_size) == (256, VOCAB)
    assert dones == [StepDone(1, 0, ()), StepDone(2, 1, ())]
    assert [int(first.sampled[0, 0]), int(second.sampled[0, 0])] == expected
    state, text = process.reports[0]
    assert (state, text[:15]) == (State.STARTING, "loading weights")
    assert process.reports[-1][0] == State.READY
    assert [process.row[name] for name in ("steps_run", "vocab_size", "max_model_len")] == [2, VOCAB, CONTEXT]
    assert process.row["step_seconds"] > 0


def test_transfers_are_answered_by_an_executor_that_moves_no_kv(tiny_model: Path) -> None:
    """Whatever begins fails at once, with the reason; what is cancelled is cancelled; plans go on in between."""
    config = executor_config(tiny_model, max_model_len=CONTEXT)
    actions = (TransferAction.RECEIVE, TransferAction.CANCEL, TransferAction.SEND)
    transfers = [KvTransfer(7 + action, 2, action) for action in actions]
    plan = StepPlan(1, 0, 1, 3, 1, (NewRow(0, 0, GREEDY),))
    process = StandIn(config, [[transfers[0], plan, *transfers[1:]], *[[]] * 3])
    process.slots[0].count[0] = 3

    serve(process)  # type: ignore[arg-type]

    words = "this executor moves no KV"
    hello, *answers = process.from_executor.drain()
    assert hello.num_blocks == 256
    assert answers == [
        TransferReport(7, 2, TransferOutcome.FAILED, 0, words),
        StepDone(1, 0, ()),
        TransferReport(9, 2, TransferOutcome.CANCELLED),
        TransferReport(8, 2, TransferOutcome.FAILED, 0, words),
    ]


def test_a_cpu_server_needs_no_triton() -> None:
    """Neither the process nor what chooses its backend imports Triton."""
    program = "import sys, fourstroke.procs.executor.main; sys.exit('triton' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_flag_of_gpus_is_refused_on_a_cpu(tiny_model: Path) -> None:
    """Before anything is loaded."""
    config = executor_config(tiny_model, backend="cpu", kv_cache_dtype="fp8")
    process = StandIn(config, [])
    with pytest.raises(ConfigError, match="--kv-cache-dtype fp8 needs a GPU"):
        serve(process)  # type: ignore[arg-type]
    assert process.reports == []


def test_who_takes_the_place_has_as_many_blocks(tiny_model: Path) -> None:
    """The scheduler counts on them, whatever memory is free now."""
    process = StandIn(executor_config(tiny_model), [])
    assert config_of(process) is process.config  # type: ignore[arg-type]
    process.row["num_blocks"] = 77
    assert config_of(process).num_blocks == 77  # type: ignore[arg-type]
