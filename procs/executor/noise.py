"""Random numbers that are a function of (seed, position): Philox-4x32-10, vectorised over rows.

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


def uniforms(seeds: Words, positions: Words) -> npt.NDArray[np.float64]:
    """One number in [0, 1) with 53 random bits for each row: key = the 64-bit seed, counter = the position."""
    zero = np.zeros_like(positions)
    counter = (positions & _LOW, positions >> _HALF, zero, zero)
    high, low, _, _ = philox4x32(counter, (seeds & _LOW, seeds >> _HALF))
    return ((high >> np.uint64(5)) * 2.0**26 + (low >> np.uint64(6))) * 2.0**-53
