"""Metrics: the board's columns, under their names, for each process."""

from prometheus_client.parser import text_string_to_metric_families

from fourstroke.ipc.board import COLUMNS
from fourstroke.procs.ingest.metrics import exposition

from .surroundings import PROCESSES, make_board


def test_every_column_is_there() -> None:
    """Counters and gauges of every process, facts left out, times in seconds."""
    board = make_board()
    board.row("scheduler0")["requests_running"] = 3
    board.row("executor0")["step_seconds"] = 1_500_000_000
    found = {
        (sample.name, sample.labels["process"]): sample.value
        for family in text_string_to_metric_families(exposition(board).decode())
        for sample in family.samples
    }
    expected = {
        (f"fourstroke_{column.name}{'_total' * (column.kind == 'counter')}", name)
        for name in PROCESSES
        for column in COLUMNS[name.rstrip("0")]
        if column.kind != "info"
    }
    assert set(found) == expected
    assert found["fourstroke_requests_running", "scheduler0"] == 3
    assert found["fourstroke_step_seconds_total", "executor0"] == 1.5
    assert b'fourstroke_requests_waiting{process="scheduler0"} 0' in exposition(board)
