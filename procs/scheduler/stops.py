"""Which of the newly sampled tokens end their requests, and why.

Token by token: EOS and stop ids, then the length. Stop strings are output's business. Below min_tokens no
token stops a request.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...common.types import Finish
from ...ipc.messages import Ended
from ...ipc.ring import Tokens
from .emission import NO_STOP_TOKEN
from .rows import Rows, RowTable


def endings(table: RowTable, rows: Rows, tokens: Tokens, eos_ids: Tokens) -> Iterator[tuple[int, Ended]]:
    """(row, last word) of each row that its new token ends; `table.length` counts that token already."""
    may_stop = table.length[rows] >= table.stops_from[rows]
    at_eos = may_stop & table.stops_at_eos[rows] & (tokens[:, None] == eos_ids).any(axis=1)
    full = table.length[rows] >= table.total_limit[rows]
    by_id = may_stop & table.has_stop_ids[rows]
    for index in np.flatnonzero(at_eos | full | by_id).tolist():
        row, token = int(rows[index]), int(tokens[index])
        request = table.request(row)
        if at_eos[index]:
            yield row, Ended(request.rid, Finish.STOP, NO_STOP_TOKEN, "")
        elif by_id[index] and token in request.limits.stop_token_ids:
            yield row, Ended(request.rid, Finish.STOP, token, "")
        elif full[index]:
            yield row, Ended(request.rid, Finish.LENGTH, NO_STOP_TOKEN, "")
