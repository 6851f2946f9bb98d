"""Token ids that no embedding belongs to: an error of their row, not of the process."""

from __future__ import annotations

from .batch import Batch


def replace_unknown(batch: Batch, vocab_size: int) -> dict[int, str]:
    """Replace token ids outside the vocabulary by 0; the causes by the rows' places in the plan."""
    unknown = (batch.tokens < 0) | (batch.tokens >= vocab_size)
    if not unknown.any():
        return {}
    errors = {
        int(place): f"token {token} is outside the vocabulary of {vocab_size}"
        for place, token in zip(batch.order[batch.owners[unknown]], batch.tokens[unknown], strict=True)
    }
    batch.tokens[unknown] = 0
    return errors
