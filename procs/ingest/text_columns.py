"""Reading a Text: its columns are checked against each other and become what the table of live requests works on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...common.errors import BadMessage
from ...ipc.logprobs import Words, unpack
from ...ipc.messages import Text


class TextRow(NamedTuple):
    """New text of a request, the ids (int32) of the tokens behind it, and their log-probabilities if it wants them."""

    rid: int
    delta: str
    ids: bytes
    words: Words | None


class TextColumns(NamedTuple):
    """What a Text says, by request. `opened`: the prompt tokens that the prefix cache had, of requests that begin."""

    opened: dict[int, int]
    rows: list[TextRow]
    prompt_words: dict[int, Words]


def read_text(text: Text) -> TextColumns:
    """The content of a Text, but its endings. Raises BadMessage if its columns do not agree."""
    opened, cached = _column(text.opened, np.int64), _column(text.cached_tokens, np.int32)
    if len(opened) != len(cached):
        raise BadMessage(f"{len(cached)} counts of cached tokens for {len(opened)} requests")
    return TextColumns(dict(zip(opened, cached, strict=True)), _rows(text), unpack(text.prompt_logprobs))


def _rows(text: Text) -> list[TextRow]:
    rids, counts = _column(text.rids, np.int64), _column(text.counts, np.int32)
    if not len(rids) == len(counts) == len(text.deltas):
        raise BadMessage(f"columns of {len(rids)}, {len(counts)} and {len(text.deltas)} rows")
    if min(counts, default=0) < 0 or 4 * sum(counts) != len(text.token_ids):
        raise BadMessage("counts that do not fit the token ids")
    logprobs = unpack(text.logprobs)
    if logprobs:
        known = dict(zip(rids, counts, strict=True))
        if any(known.get(rid) != len(words) for rid, words in logprobs.items()):
            raise BadMessage("logprobs of other tokens than those of the rows")
    found, start = [], 0
    for rid, delta, count in zip(rids, text.deltas, counts, strict=True):
        found.append(TextRow(rid, delta, text.token_ids[start : start + 4 * count], logprobs.get(rid)))
        start += 4 * count
    return found


def _column(data: bytes, kind: type[np.int32] | type[np.int64]) -> Sequence[int]:
    size = np.dtype(kind).itemsize
    if len(data) % size:
        raise BadMessage(f"a column of {len(data)} bytes")
    found: list[int] = np.frombuffer(data, kind).tolist()
    return found
