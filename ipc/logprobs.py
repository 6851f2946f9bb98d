"""Log-probabilities in packed form: those of many requests in a message, those of one as rows of words.

A row of words is one token's: its log-probability (float32), the ids of the `top` best tokens (int32), their
log-probabilities (float32), best first. The executor writes such rows into step slots, the scheduler packs
them, output cuts and packs them again, ingest reads them. Knows no token's text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..common.errors import BadMessage
from ..common.types import MAX_LOGPROBS
from .messages import NO_VALUES, Logprobs

Words = npt.NDArray[np.int32]
"""[tokens, 1 + 2 top]: some tokens of one request, which have equally many best ones."""

LOWEST = -9999.0
"""What the OpenAI API gives for a token that is very unlikely; JSON has no infinity."""

_RID, _COUNT = np.dtype("<i8"), np.dtype("<i4")


class Entry(NamedTuple):
    """One token's log-probability, and the best tokens at its place with theirs."""

    logprob: float
    best_ids: list[int]
    best_logprobs: list[float]


def pack(rows: Sequence[tuple[int, Words]]) -> Logprobs:
    """The words of some requests, by rid, as they travel in a message. A view of a step slot will do."""
    if not rows:
        return NO_VALUES
    return Logprobs(
        rids=np.array([rid for rid, _ in rows], _RID).tobytes(),
        counts=np.array([len(words) for _, words in rows], _COUNT).tobytes(),
        tops=np.array([words.shape[1] // 2 for _, words in rows], _COUNT).tobytes(),
        values=b"".join([words.tobytes() for _, words in rows]),
    )


def unpack(packed: Logprobs) -> dict[int, Words]:
    """The words of each request, by rid: views of the message. Raises BadMessage if the columns do not agree."""
    if packed == NO_VALUES:
        return {}
    if len(packed.rids) % _RID.itemsize or not len(packed.rids) == 2 * len(packed.counts) == 2 * len(packed.tops):
        raise BadMessage(f"logprobs of {len(packed.rids)}, {len(packed.counts)} and {len(packed.tops)} bytes")
    rids, counts, tops = (
        np.frombuffer(packed.rids, _RID),
        np.frombuffer(packed.counts, _COUNT),
        np.frombuffer(packed.tops, _COUNT),
    )
    if (counts < 0).any() or (tops < 0).any() or (tops > MAX_LOGPROBS).any():
        raise BadMessage("logprobs of less than no token, or of too many")
    widths = 1 + 2 * tops
    last = np.cumsum(counts.astype(np.int64) * widths)
    if _COUNT.itemsize * (last[-1] if len(last) else 0) != len(packed.values):
        raise BadMessage(f"logprobs that do not fill {len(packed.values)} bytes")
    values = np.frombuffer(packed.values, _COUNT)
    columns = zip(rids.tolist(), counts.tolist(), widths.tolist(), last.tolist(), strict=True)
    found = {rid: values[end - count * width : end].reshape(count, width) for rid, count, width, end in columns}
    if len(found) != len(rids):
        raise BadMessage("a request with logprobs twice")
    return found


def entries(words: Words) -> Iterator[Entry]:
    """The entry of each token. What is below LOWEST, or no number at all, is LOWEST; none is above 0."""
    top = words.shape[1] // 2
    scores = np.fmin(np.fmax(words.view(np.float32), np.float32(LOWEST)), np.float32(0))
    return map(Entry, scores[:, 0].tolist(), words[:, 1 : 1 + top].tolist(), scores[:, 1 + top :].tolist())
