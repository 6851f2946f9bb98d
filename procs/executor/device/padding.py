"""From a batch to the columns that go to the device, padded to the size of a graph.

A padding row is the dummy row: one token, number 0, that is not written to the cache, attends to one token of the dummy
block, and is sampled greedily into the dummy row's last token. Nobody reads any of that.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ....ipc.plan import Column
from ..batch import Batch
from ..sampler import Rules
from ..verify import Indices
from .buffers import PER_ROW, PER_TOKEN

Columns = dict[str, npt.NDArray[Any]]


def columns_of(batch: Batch, rules: Rules, dummy_row: int) -> Columns:
    """The columns of a batch, by the names of buffers.StepInput; `rules` are those of its rows, in its order."""
    spans = batch.spans
    last = spans.first + spans.count - 1
    samples = np.zeros(len(batch.rows), np.bool_)
    samples[batch.draws.rows] = True
    owners = batch.owners
    return {
        "rows": batch.rows,
        "targets": np.where(samples, batch.rows, dummy_row),
        "places": last,
        "next_positions": batch.positions[last] + 1,
        "seeds": rules.seed.view(np.int64),
        "first": spans.first,
        "count": spans.count,
        "lengths": spans.length,
        "top_k": rules.top_k,
        "temperature": rules.temperature,
        "top_p": rules.top_p,
        "min_p": rules.min_p,
        "tokens": batch.tokens,
        "sources": np.where(batch.given < 0, batch.rows[owners], -1),
        "positions": batch.positions,
        "slots": batch.slots,
    }


def padded(columns: Columns, size: int, dummy_row: int) -> Columns:
    """The columns of a step of decodes with padding rows behind them, `size` rows and tokens in all."""
    rows = len(columns["rows"])
    more = np.arange(rows, size)
    fill: dict[str, Indices | int] = {
        **dict.fromkeys(("rows", "targets"), dummy_row),
        **dict.fromkeys(("places", "first"), more),
        **dict.fromkeys(("count", "lengths", "top_p", "next_positions"), 1),
        **dict.fromkeys(("sources", "slots"), -1),
    }
    wide: Columns = {}
    for name, column in columns.items():
        wide[name] = np.zeros(size, column.dtype)
        wide[name][:rows], wide[name][rows:] = column, fill.get(name, 0)
    return wide


def dummies(size: int, dummy_row: int) -> Columns:
    """The columns of a step of padding rows alone."""
    return padded({name: np.zeros(0, np.int64) for name in (*PER_ROW, *PER_TOKEN)}, size, dummy_row)


def changes_of(tables: npt.NDArray[np.int32], rows: Column, indices: Column) -> Columns:
    """Changes of block tables. Of two of one entry both carry what it is now: the device keeps to no order."""
    return {"change_rows": rows, "change_indices": indices, "change_blocks": tables[rows, indices]}
