"""The words of log-probabilities in a step slot: the token's, then ids and log-probabilities of the best ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ...ipc.plan import Column


def put_words(words: Column, top: int, logprob: Any, ids: npt.NDArray[np.int64], logprobs: npt.NDArray[Any]) -> None:
    """Put them into `words` [..., 1 + 2 MAX_LOGPROBS], with `logprob` [...], `ids` and `logprobs` [..., top].

    Where there are less than `top` ids, the others are 0 with a log-probability of 0.
    """
    have = ids.shape[-1]
    numbers = words.view(np.float32)
    words[..., : 1 + 2 * top] = 0
    numbers[..., 0] = logprob
    words[..., 1 : 1 + have] = ids
    numbers[..., 1 + top : 1 + top + have] = logprobs
