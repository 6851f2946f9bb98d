"""The board as Prometheus text. Which metrics there are, and what they mean, is in ipc/board.py."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ...ipc.board import COLUMNS, Board, Column

CONTENT_TYPE = CONTENT_TYPE_LATEST

_FAMILIES: dict[str, type[CounterMetricFamily] | type[GaugeMetricFamily]] = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
}
_NS = 1e9


class _BoardCollector(Collector):
    """Gives prometheus_client the numbers of a board, a sample for each process that has the column."""

    def __init__(self, board: Board) -> None:
        self._board = board

    def collect(self) -> Iterator[Metric]:
        columns: dict[str, Column] = {}
        for role in dict.fromkeys(row.role for row in self._board.rows.values()):
            columns |= {column.name: column for column in COLUMNS[role] if column.kind != "info"}
        for column in columns.values():
            yield self._family(column)

    def _family(self, column: Column) -> Metric:
        name, family = f"fourstroke_{column.name}", _FAMILIES[column.kind]
        metric = family(name, column.help, labels=["process"])
        for process, row in self._board.rows.items():
            if column in COLUMNS[row.role]:
                value = row[column.name]
                metric.add_metric([process], value / _NS if column.in_nanoseconds else value)
        return metric


def exposition(board: Board) -> bytes:
    """All metrics of the server, in CONTENT_TYPE."""
    return generate_latest(_BoardCollector(board))
