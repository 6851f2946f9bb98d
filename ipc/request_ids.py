"""The ids of requests between processes: never used twice, and telling whose they are.

| bits  | what |
|-------|------|
| 48-62 | the number of the ingest that owns the request |
| 32-47 | the life of that ingest: which process of that name it was (see wire.py) |
| 0-31  | a count |

So what an ingest that died has left behind cannot be taken for a request of the one in its place, and a request that is
handed over again, under a new id, not for what it was before.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np

_Ids = TypeVar("_Ids", int, np.ndarray)

_INGEST, _LIFE = 48, 32


def first_rid(ingest: int, life: int) -> int:
    """The first id of an ingest in one of its lives; the others follow it."""
    return (ingest << _INGEST) + ((life & 0xFFFF) << _LIFE) + 1


def ingest_of(rid: int) -> int:
    """The number of the ingest that owns a request."""
    return rid >> _INGEST


def output_of(rids: _Ids, outputs: int) -> _Ids:
    """Which of so many outputs makes a request's text, for its whole life; or those of several (int64).

    Ids of an ingest are consecutive, so outputs have equal shares.
    """
    return rids % outputs
