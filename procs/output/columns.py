"""Reading an Emit: its columns are checked against each other and become what the core works on.

Knows no request: whether anybody waits for a row is the core's question.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ...common.errors import BadMessage
from ...common.types import Finish
from ...ipc.logprobs import Words, unpack
from ...ipc.messages import Emit, Endings
from .request import End

RID, COUNT = np.dtype("<i8"), np.dtype("<i4")
_FINISH = np.dtype("i1")

_FINISHES = {int(finish): finish for finish in Finish if finish is not Finish.NONE}


class Row(NamedTuple):
    """The new tokens of a request: those of the Emit from `first` up to `last`."""

    rid: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Columns:
    """What an Emit says, by request. `logprobs` has an entry for each token of the row of the same rid."""

    rows: list[Row]
    ends: dict[int, End]
    logprobs: dict[int, Words]
    prompt_logprobs: dict[int, Words]


def read_columns(emit: Emit, tokens: int, reject: Callable[[BadMessage], None]) -> Columns:
    """The content of an Emit of so many tokens. Raises BadMessage if its columns do not agree.

    An end that gives no reason is rejected by itself.
    """
    logprobs, prompt_logprobs = unpack(emit.logprobs), unpack(emit.prompt_logprobs)
    rows = _rows(emit, tokens)
    if logprobs:
        counts = {row.rid: row.last - row.first for row in rows}
        if any(counts.get(rid) != len(words) for rid, words in logprobs.items()):
            raise BadMessage("logprobs of other tokens than those of the rows")
    return Columns(rows, dict(_ends(emit.ended, reject)), logprobs, prompt_logprobs)


def _rows(emit: Emit, tokens: int) -> list[Row]:
    if len(emit.rids) % RID.itemsize or 2 * len(emit.counts) != len(emit.rids):
        raise BadMessage(f"columns of {len(emit.rids)} and {len(emit.counts)} bytes")
    rids, counts = np.frombuffer(emit.rids, RID), np.frombuffer(emit.counts, COUNT)
    last = np.cumsum(counts, dtype=np.int64)
    if (counts < 0).any() or (last[-1] if len(last) else 0) != tokens:
        raise BadMessage(f"counts that do not add up to {tokens} tokens")
    return list(map(Row, rids.tolist(), (last - counts).tolist(), last.tolist()))


def _ends(ended: Endings, reject: Callable[[BadMessage], None]) -> Iterator[tuple[int, End]]:
    count, rest = divmod(len(ended.rids), RID.itemsize)
    if rest or len(ended.finishes) != count or len(ended.stop_tokens) != COUNT.itemsize * count:
        raise BadMessage(f"ends of {len(ended.rids)}, {len(ended.finishes)} and {len(ended.stop_tokens)} bytes")
    rids = np.frombuffer(ended.rids, RID).tolist()
    finishes = np.frombuffer(ended.finishes, _FINISH).tolist()
    stop_tokens = np.frombuffer(ended.stop_tokens, COUNT).tolist()
    details = {detail.rid: detail.text for detail in ended.details}
    for rid, finish, stop_token in zip(rids, finishes, stop_tokens, strict=True):
        if finish in _FINISHES:
            yield rid, End(_FINISHES[finish], stop_token, details.get(rid, ""))
        else:
            reject(BadMessage(f"the end of request {rid} gives no reason that there is: {finish}"))
