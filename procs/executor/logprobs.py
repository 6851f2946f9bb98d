"""Log-probabilities of tokens, and their words in a step slot (see ipc/messages.Logprobs).

They are those of the model itself: of its logits in float32, before biases, masks, temperature and filters.
What is written depends on a row's own logits only; of equal logits the lower token id is the better.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from ...ipc.plan import Column
from .verify import Indices
from .words import put_words

Floats = npt.NDArray[np.float32]

_GROUPS = 256
"""A row's highest tokens are sought among so many groups: 40 us of 49,152 tokens, where topk takes 150."""


def write_logprobs(logprobs: torch.Tensor, tokens: Indices, tops: Indices, words: Sequence[Column]) -> None:
    """Write the words of each row's token and of its tops[i] best ones into words[i].

    `logprobs` is float32 [rows, vocabulary], a log-softmax.
    """
    for row, token, top, into in zip(logprobs.numpy(), tokens.tolist(), tops.tolist(), words, strict=True):
        ids = best(row, top)
        put_words(into, top, row[token], ids, row[ids])


def best(row: Floats, count: int) -> Indices:
    """The ids of the highest numbers of a row, best first; none if the row has NaN only."""
    if not count:
        return np.zeros(0, np.int64)
    highest = np.maximum.reduceat(row, np.arange(0, len(row), max(1, len(row) // _GROUPS)))
    kth = min(count, len(highest))
    # The kth highest of the groups' highest is not above the kth highest of all.
    ids = np.flatnonzero(row >= np.partition(highest, -kth)[-kth])
    return ids[np.lexsort((ids, -row[ids]))][:count]
