"""Noise that is a function of (seed, position): Gumbel variates from Philox-4x32-10, vectorised over rows.

Counter-based: there is no state to keep, copy or restore, and a row's number does not depend on its
neighbours. Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011;
the constants are those of Random123's philox.h.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]
"""32-bit words, kept in 64 bits so that products do not overflow."""

_ROUNDS = 10
_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL = (np.uint64(0x9E3779B9), np.uint64(0xBB67AE85))
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


def philox4x32(counter: tuple[Words, Words, Words, Words], key: tuple[Words, Words]) -> tuple[Words, ...]:
    """Four random words for each counter and key, elementwise."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        p0, p1 = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c1, c2, c3 = (p1 >> _HALF) ^ c1 ^ k0, p1 & _LOW, (p0 >> _HALF) ^ c3 ^ k1, p0 & _LOW
        k0, k1 = (k0 + _WEYL[0]) & _LOW, (k1 + _WEYL[1]) & _LOW
    return c0, c1, c2, c3


def gumbels(seeds: Words, positions: Words, count: int) -> npt.NDArray[np.float64]:
    """`count` variates of the standard Gumbel distribution for each row, float64 [rows, count].

    Variate i is -log(-log u), u = (w + 1/2) / 2^32, where w is word i % 4 of Philox with the 64-bit seed as
    key and (position, i // 4) as counter. So a variate does not depend on how many are asked for.
    """
    index = np.arange(-(-count // 4), dtype=np.uint64)[None]
    position, seed = positions[:, None], seeds[:, None]
    counter = np.broadcast_arrays(position & _LOW, position >> _HALF, index, np.uint64(0))
    words = philox4x32((counter[0], counter[1], counter[2], counter[3]), (seed & _LOW, seed >> _HALF))
    flat = np.stack(words, axis=-1).reshape(len(seeds), -1)[:, :count].astype(np.float64)
    noise: npt.NDArray[np.float64] = -np.log(-np.log((flat + 0.5) * 2.0**-32))
    return noise
