"""The board: each process its own row, each number its own word."""

import os
import re
import time
from itertools import product

import pytest

from fourstroke.common.types import State
from fourstroke.ipc.board import COLUMNS, Board, board_bytes

NAMES = ["supervisor0", *[f"{role}0" for role in COLUMNS if role != "supervisor"], "scheduler1"]


@pytest.fixture
def memory():
    return bytearray(board_bytes(len(NAMES)))


def test_every_number_has_a_word_of_its_own(memory):
    """What is written in one column of one row changes no other, and everybody reads it."""
    board = Board(memory, NAMES)
    places = [(name, column.name) for name in NAMES for column in COLUMNS[board.row(name).role]]
    for value, (name, column) in enumerate(places):
        board.row(name)[column] = value
    reader = Board(memory, NAMES)
    assert [reader.row(name)[column] for name, column in places] == list(range(len(places)))


@pytest.mark.parametrize("value", [-(2**63), -1, 0, 2**63 - 1])
def test_values(memory, value):
    """A value is an int64, read back as an int."""
    row = Board(memory, NAMES).row("output0")
    row["stop_strings"] = value
    assert row["stop_strings"] == value
    assert type(row["stop_strings"]) is int


def test_add(memory):
    """Counters are added to."""
    row = Board(memory, NAMES).row("publisher0")
    row.add("kv_event_batches")
    row.add("kv_event_batches", 4)
    assert row["kv_event_batches"] == 5


def test_unknown_column_and_row(memory):
    """A name that is not declared is an error, in the code that uses it."""
    board = Board(memory, NAMES)
    with pytest.raises(KeyError):
        board.row("output0")["steps_run"]
    with pytest.raises(KeyError):
        board.row("output9")


def test_rows_of_a_role(memory):
    """All engines' rows, in order."""
    board = Board(memory, NAMES)
    assert board.of_role("scheduler") == [board.row("scheduler0"), board.row("scheduler1")]


def test_state_and_heartbeat(memory):
    """A process says who it is, what it does, and when it last came round."""
    row = Board(memory, NAMES).row("ingest0")
    before = time.monotonic_ns()
    row.enter(State.READY)
    assert (row.state, row["pid"]) == (State.READY, os.getpid())
    assert before <= row["heartbeat"] <= time.monotonic_ns()


@pytest.mark.parametrize("role", COLUMNS)
def test_columns_of_a_role(role):
    """Names are unique in a role, fit the row, are names for Prometheus, and each has its help."""
    names = [column.name for column in COLUMNS[role]]
    assert len(set(names)) == len(names) <= 64
    assert all(re.fullmatch("[a-z][a-z_]*", name) for name in names)
    assert all(column.help and not column.help.endswith(".") for column in COLUMNS[role])


def test_a_name_means_one_thing():
    """A column that several roles have is of one kind and has one help in all of them."""
    for one, other in product(COLUMNS.values(), repeat=2):
        shared = {column.name: column for column in other}
        assert all(shared.get(column.name, column) == column for column in one)


def test_only_the_common_columns_are_shared():
    """A metric's name belongs to one role, except those that every role has."""
    common = {column.name for column in COLUMNS["supervisor"]}
    own = [column.name for columns in COLUMNS.values() for column in columns if column.name not in common]
    assert len(set(own)) == len(own)
    assert all(common <= {column.name for column in columns} for columns in COLUMNS.values())


def test_times_are_kept_in_nanoseconds():
    """Seconds in the name mean nanoseconds on the board."""
    marked = {column.name for columns in COLUMNS.values() for column in columns if column.in_nanoseconds}
    assert marked == {name for columns in COLUMNS.values() for name in [c.name for c in columns] if "seconds" in name}


def test_a_process_takes_the_place_of_another(memory):
    """What the one before counted and measured is over, what it found out is not; a life is told when it begins."""
    row = Board(memory, NAMES).row("executor0")
    row["steps_run"], row["max_model_len"] = 7, 2048
    row.live(3)
    row.enter(State.READY)
    row.begin()
    assert (row["steps_run"], row["max_model_len"], row.state, row.life) == (0, 2048, State.STARTING, 3)
    row.live(4)
    assert row.life == 4
