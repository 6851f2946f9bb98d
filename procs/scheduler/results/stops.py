"""Which of the newly sampled tokens end their requests, and why.

Token by token: EOS and stop ids, then stop sequences, then the length. The first that holds ends the request, and
the tokens behind exist nowhere. Stop strings are output's business. Below min_tokens no token stops a
request.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ....common.types import Finish
from ....ipc.ring import Tokens
from ..rows import Counts, Rows, RowTable
from .emission import NO_STOP_TOKEN


@dataclass(frozen=True, slots=True)
class Cut:
    """Per row: how many of its new tokens count, why it ends with the last (or Finish.NONE), and the stop id."""

    kept: Counts
    finishes: npt.NDArray[np.int8]
    stop_tokens: Tokens


def append(table: RowTable, rows: Rows, sampled: Tokens, produced: Counts, eos_ids: Tokens) -> Cut:
    """Append to each row its first produced[i] tokens of `sampled` [rows, at most], as far as they count."""
    cut = Cut(np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int8), np.full(len(rows), NO_STOP_TOKEN, np.int32))
    places = np.arange(len(rows))
    for step in range(int(produced.max(initial=0))):
        if step:  # all rows have a first token; few have more
            places = np.flatnonzero((produced > step) & (cut.finishes == Finish.NONE))
        at = rows[places]
        tokens = sampled[places, step]
        table.tokens[at, table.length[at]] = tokens
        table.length[at] += 1
        cut.kept[places] += 1
        _judge(table, at, tokens, eos_ids, places, cut)
    return cut


def _judge(table: RowTable, rows: Rows, tokens: Tokens, eos_ids: Tokens, places: Rows, cut: Cut) -> None:
    """Write down which rows end with the token that was just appended to each."""
    length = table.length[rows]
    may_stop = length >= table.stops_from[rows]
    full = length >= table.token_limit[rows]
    cut.finishes[places[full]] = Finish.LENGTH
    at_eos = may_stop & table.stops_at_eos[rows] & (tokens[:, None] == eos_ids).any(axis=1)
    looks = may_stop & (table.has_stop_ids[rows] | table.has_stop_sequences[rows])
    for index in np.flatnonzero(looks & ~at_eos).tolist():
        row, token = int(rows[index]), int(tokens[index])
        if token in table.request(row).stop_ids:
            cut.finishes[places[index]], cut.stop_tokens[places[index]] = Finish.STOP, token
        elif table.has_stop_sequences[row] and _ends_in_sequence(table, row):
            cut.finishes[places[index]] = Finish.STOP
    cut.finishes[places[at_eos]] = Finish.STOP


def _ends_in_sequence(table: RowTable, row: int) -> bool:
    """Whether a row's generated tokens end in one of its stop sequences."""
    request = table.request(row)
    length = int(table.length[row])
    for sequence in request.limits.stop_sequences:
        first = length - len(sequence)
        if first >= request.prompt_tokens and tuple(table.tokens[row, first:length].tolist()) == sequence:
            return True
    return False
