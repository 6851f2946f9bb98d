"""The loop around a runner whose steps end later than they are launched."""

from __future__ import annotations

import os
from collections import deque

import pytest

from fourstroke.common.errors import BadMessage
from fourstroke.ipc.board import Board, Row, board_bytes
from fourstroke.ipc.messages import FROM_EXECUTOR, TO_EXECUTOR, Began, Hello, RowError, StepDone, StepPlan
from fourstroke.ipc.wire import Inbox, Outbox, memory_wire
from fourstroke.procs.executor.loop import AtOnce, ExecutorLoop

HELLO = Hello(8, 16, 64, 100, ())


class Later:
    """Steps end when the test says so."""

    hello = HELLO

    def __init__(self) -> None:
        self.launched: deque[StepPlan] = deque()
        self.ended = 0
        self._fd = os.eventfd(0)

    def fileno(self) -> int:
        return self._fd

    @property
    def ends(self) -> Later:
        return self

    def launch(self, plan: StepPlan) -> None:
        if plan.rows == 0:
            raise BadMessage("a plan of 0 rows")
        self.launched.append(plan)

    def collect(self) -> StepDone | None:
        if not self.ended:
            return None
        self.ended -= 1
        plan = self.launched.popleft()
        return StepDone(plan.step, plan.slot, (RowError(0, "sick"),))


def plan(step: int, rows: int = 1) -> StepPlan:
    return StepPlan(step, step % 2, rows, 0, 0, ())


class World:
    """A loop on in-memory wires."""

    def __init__(self, runner: Later | AtOnce) -> None:
        self.to_executor: Outbox
        self.answers: Inbox
        self.to_executor, self.inbox = memory_wire("scheduler0", *TO_EXECUTOR)
        outbox, self.answers = memory_wire("scheduler0", *FROM_EXECUTOR)
        self.row: Row = Board(bytearray(board_bytes(1)), ["executor0"]).row("executor0")
        self.loop = ExecutorLoop(runner, self.inbox, outbox, self.row)

    def turn(self, *plans: StepPlan) -> list[int]:
        """Turn once with these plans before; the steps that were answered."""
        for one in plans:
            self.to_executor.send(one)
        self.loop.turn()
        return [done.step for done in self.answers.drain()]


def test_steps_are_answered_when_they_end() -> None:
    """A step is launched while the one before is under way; answers come in order, several at once if need be."""
    runner = Later()
    world = World(runner)
    assert world.turn(plan(1)) == []
    assert world.turn(plan(2)) == []
    assert [one.step for one in runner.launched] == [1, 2]
    runner.ended = 1
    assert world.turn() == [1]
    world.turn(plan(3))
    runner.ended = 2
    assert world.turn() == [2, 3]
    assert [world.row[name] for name in ("steps_run", "row_errors", "step_began")] == [3, 3, 0]


def test_the_board_tells_since_when_the_oldest_step_runs() -> None:
    """A step that hangs can be told by its age, and of which size it is; a refused plan does not change the age."""
    runner = Later()
    world = World(runner)
    world.turn(plan(1, rows=3))
    assert [world.row[name] for name in ("step", "step_rows", "step_tokens")] == [1, 3, 0]
    began = world.row["step_began"]
    assert began > 0
    world.turn(plan(2), plan(3, rows=0))
    world.turn()
    assert world.inbox.bad_frames == 1
    assert world.row["step_began"] == began
    runner.ended = 1
    world.turn()
    assert world.row["step_began"] > began
    runner.ended = 1
    world.turn()
    assert world.row["step_began"] == 0


def test_times_of_steps_do_not_overlap() -> None:
    """The time of steps that were under way together is counted once."""
    runner = Later()
    world = World(runner)
    world.turn(plan(1), plan(2))
    began = world.row["step_began"]
    world.turn()
    runner.ended = 2
    world.turn()
    whole = world.loop._ended_ns - began
    assert world.row["step_seconds"] == pytest.approx(whole, abs=1)


class Sync:
    """Runs steps at once."""

    hello = HELLO

    def run(self, plan: StepPlan) -> StepDone:
        return StepDone(plan.step, plan.slot, ())


def test_a_synchronous_runner_answers_in_the_turn() -> None:
    """One plan a turn, answered in it; nothing is to be waited for."""
    runner = AtOnce(Sync())
    assert runner.ends is None
    world = World(runner)
    assert world.turn(plan(1), plan(2)) == [1]
    assert world.turn() == [2]


def test_another_scheduler() -> None:
    """What the dead one had begun is ended first, and told to nobody; only then the next one hears Hello."""
    runner = Later()
    world = World(runner)
    world.turn(plan(1), plan(2))
    world.turn()
    world.to_executor.send(Began())
    world.to_executor.send(plan(0))
    for left in (2, 1):
        world.loop.turn()
        assert (list(world.answers.drain()), len(runner.launched)) == ([], left)
        runner.ended = 1
    world.loop.turn()
    assert list(world.answers.drain()) == [HELLO]
    world.loop.turn()
    runner.ended = 1
    assert world.turn() == [0]
