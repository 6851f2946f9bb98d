"""What a step takes to the device: one piece of memory, filled by the host and copied in one go.

A step's layout follows from its numbers of rows and tokens alone. So the views of a graph of some size are those of
each step that is padded to it. The host's side is pinned, once for each step slot: a slot is filled again only when
its step has ended, so the copy need not be awaited.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from .card import Card

_ALIGNMENT = 16
"""Bytes; what kernels may assume of a pointer."""

PER_ROW: dict[str, torch.dtype] = {
    "rows": torch.int64,
    "targets": torch.int64,
    "places": torch.int64,
    "next_positions": torch.int64,
    "seeds": torch.int64,
    "first": torch.int32,
    "count": torch.int32,
    "lengths": torch.int32,
    "top_k": torch.int32,
    "temperature": torch.float32,
    "top_p": torch.float32,
    "min_p": torch.float32,
}
PER_TOKEN: dict[str, torch.dtype] = dict.fromkeys(("tokens", "sources", "positions", "slots"), torch.int64)
PER_CHANGE: dict[str, torch.dtype] = {
    "change_rows": torch.int64,
    "change_indices": torch.int64,
    "change_blocks": torch.int32,
}


@dataclass(frozen=True, slots=True)
class StepInput:
    """Views of one step's columns, on the device.

    Per row: `rows`, the executor's row, and `targets`, the same if it samples, else the dummy row; `places`, its last
    token, and `next_positions`, the position of the token that it samples; `first`, `count` and `lengths` as in
    attention.Spans; and its rule (sampler.Rules), the seeds' bits as int64. Per token: `tokens`, or with `sources` not
    -1 the last token of that row; `positions`; `slots` in the KV cache, -1 for none. Per change of a block table:
    `change_rows`, `change_indices`, `change_blocks`.
    """

    rows: torch.Tensor
    targets: torch.Tensor
    places: torch.Tensor
    next_positions: torch.Tensor
    seeds: torch.Tensor
    first: torch.Tensor
    count: torch.Tensor
    lengths: torch.Tensor
    top_k: torch.Tensor
    temperature: torch.Tensor
    top_p: torch.Tensor
    min_p: torch.Tensor
    tokens: torch.Tensor
    sources: torch.Tensor
    positions: torch.Tensor
    slots: torch.Tensor
    change_rows: torch.Tensor
    change_indices: torch.Tensor
    change_blocks: torch.Tensor


@dataclass(frozen=True, slots=True)
class Column:
    """Where a column lies."""

    offset: int
    count: int
    dtype: torch.dtype

    @property
    def end(self) -> int:
        return self.offset + self.count * self.dtype.itemsize


def layout(rows: int, tokens: int, changes: int) -> dict[str, Column]:
    """Where the columns of such a step lie, in bytes; changes come last, so that their number moves nothing else."""
    columns: dict[str, Column] = {}
    at = 0
    for count, types in ((rows, PER_ROW), (tokens, PER_TOKEN), (changes, PER_CHANGE)):
        for name, dtype in types.items():
            columns[name] = Column(at, count, dtype)
            at += -(-count * dtype.itemsize // _ALIGNMENT) * _ALIGNMENT
    return columns


class StepBuffers:
    """The device's memory for the step that it computes, and the host's for each step slot."""

    def __init__(self, card: Card, slots: int, rows: int, tokens: int, changes: int) -> None:
        """`rows`, `tokens` and `changes` are the most of a step."""
        size = max(column.end for column in layout(rows, tokens, changes).values())
        self._memory = torch.zeros(size, dtype=torch.uint8, device=card.device)
        self._staging = [card.host_memory(size) for _ in range(slots)]

    def views(self, rows: int, tokens: int, changes: int = 0) -> StepInput:
        """The columns of such a step on the device."""
        columns = layout(rows, tokens, changes)
        return StepInput(**{name: _view(self._memory, column) for name, column in columns.items()})

    def send(self, slot: int, rows: int, tokens: int, columns: Mapping[str, npt.NDArray[Any]]) -> StepInput:
        """Copy a step's columns, if need be without changes, to the device, in one copy that is not awaited.

        Any integers and floats will do.
        """
        changes = len(columns.get("change_rows", ()))
        places, staging = layout(rows, tokens, changes), self._staging[slot]
        for name, place in places.items():
            if place.count:
                _view(staging, place).copy_(torch.from_numpy(np.ascontiguousarray(columns[name])))
        end = max(place.end for place in places.values())
        self._memory[:end].copy_(staging[:end], non_blocking=True)
        return self.views(rows, tokens, changes)


def _view(memory: torch.Tensor, column: Column) -> torch.Tensor:
    return memory[column.offset : column.end].view(column.dtype)
