"""Which drafts were right: the acceptance rule of speculative decoding, and what a step returns.

The noise of a token is a function of the row's seed and the token's position. So the token that the model would have
chosen at each position of a row is known, and a draft is accepted if it is that token and all drafts before it were
accepted. What is generated is then exactly what would be without drafts, at any temperature; the rejection sampling
of Leviathan et al. 2023 keeps only its distribution. Knows neither torch nor the model.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...ipc.plan import StepSlot

Indices = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Sampled:
    """Tokens, and which of them could not be sampled: the highest logit is no finite number."""

    tokens: Indices
    failed: Flags


@dataclass(frozen=True, slots=True)
class Verdict:
    """Per row that samples: its `tokens` [rows, 1 + most drafts], of which the first `produced` count."""

    tokens: Indices
    produced: Indices
    failed: Flags


def verify(sampled: Sampled, fed: Indices, turns: Indices, most_drafts: int) -> Verdict:
    """Compare drafts with what was sampled.

    Row i draws turns[i] times, and all draws lie one after the other: `sampled` by each, `fed` the token that it
    follows, a draft in all but a row's first draw. A row fails if its first draw does; a later draw that
    fails rejects its draft, so that the row fails in its next step, as it would without drafts.
    """
    width = 1 + most_drafts
    place = np.cumsum(turns) - turns
    drawn = np.arange(width) < turns[:, None]
    index = np.where(drawn, place[:, None] + np.arange(width), place[:, None])
    tokens = sampled.tokens[index]
    right = drawn[:, 1:] & (fed[index[:, 1:]] == tokens[:, :-1]) & ~sampled.failed[index[:, 1:]]
    accepted = np.logical_and.accumulate(right, axis=1).sum(axis=1)
    return Verdict(tokens, 1 + accepted, sampled.failed[place])


def write_results(slot: StepSlot, rows: int, places: Indices, verdict: Verdict, drafted: Indices) -> None:
    """Leave the results of a step of so many rows in its slot; the rows at `places` are those that sample."""
    slot.produced[:rows] = slot.drafted[:rows] = 0
    slot.sampled[places] = verdict.tokens
    slot.produced[places] = verdict.produced
    slot.drafted[places] = drafted
