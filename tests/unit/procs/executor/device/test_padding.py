"""Padding: a step's own rows are untouched, the others are the dummy."""

import numpy as np
import pytest

from fourstroke.procs.executor.device.buffers import PER_ROW, PER_TOKEN
from fourstroke.procs.executor.device.padding import changes_of, dummies, padded

DUMMY = 7


@pytest.mark.parametrize("rows, size", [(1, 1), (1, 2), (3, 8), (0, 4)])
def test_own_rows_first_and_dummies_behind(rows: int, size: int) -> None:
    """Every column keeps its own and is filled up; what is behind writes nothing and samples for nobody."""
    columns = {name: np.arange(rows) + 10 for name in (*PER_ROW, *PER_TOKEN)}
    wide = padded(columns, size, DUMMY)
    for name, column in wide.items():
        assert len(column) == size
        assert column[:rows].tolist() == columns[name].tolist()
    behind = {name: column[rows:] for name, column in wide.items()}
    assert set(behind["rows"]) | set(behind["targets"]) <= {DUMMY}
    assert set(behind["slots"]) | set(behind["sources"]) <= {-1}
    assert behind["places"].tolist() == behind["first"].tolist() == list(range(rows, size))
    assert set(behind["lengths"]) | set(behind["count"]) | set(behind["top_p"]) <= {1}
    assert set(behind["temperature"]) | set(behind["tokens"]) | set(behind["positions"]) <= {0}


def test_dummies_are_a_step_of_padding() -> None:
    """The same as a step of no rows, padded."""
    assert set(dummies(4, DUMMY)) == {*PER_ROW, *PER_TOKEN}
    assert dummies(4, DUMMY)["rows"].tolist() == [DUMMY] * 4


def test_changes_of_one_entry_agree() -> None:
    """The device may apply changes in any order: two of one entry carry the later block."""
    tables = np.zeros((2, 4), np.int32)
    rows, indices, blocks = (np.array(part, np.int32) for part in ([1, 0, 1], [2, 0, 2], [5, 6, 7]))
    tables[rows, indices] = blocks
    assert changes_of(tables, rows, indices)["change_blocks"].tolist() == [7, 6, 7]
