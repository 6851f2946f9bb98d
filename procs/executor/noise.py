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
    c0, c1, c2, c3 = np.broadcast_arrays(*counter)
    # Words 0 and 2 are multiplied, and words 1 and 3 go along: two by two, these are half as many calls of numpy.
    even, odd, keys = np.stack([c0, c2]), np.stack([c1, c3]), np.stack(np.broadcast_arrays(*key))
    shape = (2, *(1,) * (even.ndim - 1))
    multipliers, weyl = np.array(_MULTIPLIERS).reshape(shape), np.array(_WEYL).reshape((2, *(1,) * (keys.ndim - 1)))
    for _ in range(_ROUNDS):
        products = even * multipliers
        even, odd = (products >> _HALF)[::-1] ^ odd ^ keys, (products & _LOW)[::-1]
        keys = (keys + weyl) & _LOW
    return even[0], odd[0], even[1], odd[1]


def gumbels(seeds: Words, positions: Words, count: int) -> npt.NDArray[np.float64]:
    """`count` variates of the standard Gumbel distribution for each row, float64 [rows, count].

    Variate i is -log(-log u), u = (w + 1/2) / 2^32, where w is word i % 4 of Philox with the 64-bit seed as
    key and (position, i // 4) as counter. So a variate does not depend on how many are asked for.
    """
    index = np.arange(-(-count // 4), dtype=np.uint64)[None]
    position, seed = positions[:, None], seeds[:, None]
    counter = (position & _LOW, position >> _HALF, index, np.zeros_like(index))
    words = philox4x32(counter, (seed & _LOW, seed >> _HALF))
    flat = np.stack(words, axis=-1).reshape(len(seeds), -1)[:, :count].astype(np.float64)
    noise: npt.NDArray[np.float64] = -np.log(-np.log((flat + 0.5) * 2.0**-32))
    return noise
