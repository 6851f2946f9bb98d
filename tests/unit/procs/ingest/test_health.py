"""Health: 200 only while a token can be produced."""

import pytest

from fourstroke.common.types import State
from fourstroke.ipc.board import Board, board_bytes
from fourstroke.procs.ingest.health import SILENT_S, look, model_limits

from .surroundings import MAX_MODEL_LEN, VOCAB, make_board


def test_ready() -> None:
    """With all rows ready the server is, and the model's limits are the executor's."""
    board = make_board()
    assert look(board, draining=False).ok
    limits = model_limits(board)
    assert (limits.max_model_len, limits.vocab_size) == (MAX_MODEL_LEN, VOCAB)


@pytest.mark.parametrize("name", ["executor0", "scheduler0", "output0"])
def test_starting(name: str) -> None:
    """Each process that a token needs is waited for; the publisher is not. Until then nothing is accepted."""
    board = make_board()
    board.row("supervisor").enter(State.STARTING)
    board.row("publisher0").enter(State.STARTING)
    assert look(board, draining=False).ok
    for state in (State.STARTING, State.FAILED):
        board.row(name).enter(state)
        found = look(board, draining=False)
        assert (found.status, found.accepts, name in found.detail) == ("starting", False, True)


@pytest.mark.parametrize("name", ["executor0", "scheduler0", "output0"])
def test_starting_again(name: str) -> None:
    """A server that has been ready and waits for a process to be replaced is degraded, and takes requests in."""
    board = make_board()
    board.row(name).enter(State.STARTING)
    found = look(board, draining=False)
    assert (found.status, found.ok, found.accepts, name in found.detail) == ("degraded", False, True, True)
    assert model_limits(board).max_model_len == MAX_MODEL_LEN


@pytest.mark.parametrize("name", ["executor0", "scheduler0", "output0"])
@pytest.mark.parametrize("state", [State.FAILED, State.STOPPED])
def test_degraded(name: str, state: State) -> None:
    """A process that has ended is named; but no request needs the publisher."""
    board = make_board()
    board.row("publisher0").enter(state)
    assert look(board, draining=False).ok
    board.row(name).enter(state)
    found = look(board, draining=False)
    assert (found.status, name in found.detail) == ("degraded", True)


def test_killed_and_stuck() -> None:
    """A process that was killed leaves its row behind; one that is stuck lets it grow old. Neither is ready."""
    board = make_board()
    board.row("executor0")["pid"] = 2**22 + 1  # above the kernel's largest pid
    assert look(board, draining=False).status == "degraded"
    board = make_board()
    board.row("output0")["heartbeat"] -= int((SILENT_S + 1) * 1e9)
    assert look(board, draining=False).status == "degraded"


@pytest.mark.parametrize("name", ["executor1", "scheduler1"])
def test_every_engine_is_needed(name: str) -> None:
    """One engine of two that is not ready, or is gone, is a server that is not; its limits are those of the smaller."""
    names = ("supervisor", "executor0", "executor1", "scheduler0", "scheduler1", "output0", "ingest0")
    board = Board(bytearray(board_bytes(len(names))), names)
    for number, row in enumerate(board.rows.values()):
        row.enter(State.READY)
        if row.role == "executor":
            row["max_model_len"], row["vocab_size"] = 100 - number, VOCAB
    assert look(board, draining=False).ok
    assert model_limits(board).max_model_len == 98
    board.row(name).enter(State.STARTING)
    assert look(board, draining=False).status == "degraded"
    board.row(name).enter(State.FAILED)
    found = look(board, draining=False)
    assert (found.status, name in found.detail) == ("degraded", True)


def test_a_long_step_is_not_death() -> None:
    """The executor's loop comes round once a step, and a step may be a long prefill of a large model."""
    board = make_board()
    row = board.row("executor0")
    row["step_began"] = row["heartbeat"] = row["heartbeat"] - int(2 * SILENT_S * 1e9)
    assert look(board, draining=False).ok


def test_an_idle_executor_that_is_silent_is_dead() -> None:
    """Between steps its loop comes round like any other."""
    board = make_board()
    board.row("executor0")["heartbeat"] -= int(2 * SILENT_S * 1e9)
    assert look(board, draining=False).status == "degraded"


def test_draining_goes_first() -> None:
    """A server that drains says so, whatever else there is."""
    board = make_board()
    board.row("executor0").enter(State.STOPPED)
    found = look(board, draining=True)
    assert (found.status, found.accepts) == ("draining", False)


def test_nothing_has_started() -> None:
    """A zeroed board, or one without an executor, is a server that starts."""
    assert look(Board(bytearray(board_bytes(2)), ("ingest0", "output0")), draining=False).status == "starting"
