"""Noise: the published test vectors of Philox, its distribution, its independence of all but seed and position."""

import numpy as np
import pytest

from fourstroke.procs.executor.noise import gumbels, philox4x32

# kat_vectors of Random123 1.14: philox4x32 10, counter, key, result
KNOWN_ANSWERS = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


def words(*values: int) -> tuple[np.ndarray, ...]:
    return tuple(np.array([value], np.uint64) for value in values)


@pytest.mark.parametrize(("counter", "key", "answer"), KNOWN_ANSWERS)
def test_known_answers(counter: tuple[int, ...], key: tuple[int, ...], answer: tuple[int, ...]) -> None:
    """The generator is Philox-4x32-10, to the bit."""
    assert [int(word[0]) for word in philox4x32(words(*counter), words(*key))] == list(answer)


def test_rows_do_not_depend_on_each_other() -> None:
    """A row's noise is the same alone and among others, in any order, and begins alike whatever is asked for."""
    seeds = np.array([0, 1, 2**63, 2**64 - 1, 7], np.uint64)
    positions = np.array([0, 5, 2**31, 1, 9], np.uint64)
    together = gumbels(seeds, positions, 10)
    alone = [gumbels(seeds[i : i + 1], positions[i : i + 1], 10)[0].tolist() for i in range(5)]
    assert together.tolist() == alone
    assert gumbels(seeds[::-1], positions[::-1], 10).tolist() == alone[::-1]
    assert gumbels(seeds, positions, 3).tolist() == together[:, :3].tolist()


def test_the_distribution_is_gumbels() -> None:
    """exp(-exp(-g)) is uniform: along positions, across seeds and along the places of one row."""
    count = 20_000
    one, all_ = np.full(count, 3, np.uint64), np.arange(count, dtype=np.uint64)
    samples = [gumbels(one, all_, 1), gumbels(all_, one, 1), gumbels(one[:1], one[:1], count)]
    for variates in samples:
        assert np.all(np.isfinite(variates))
        bins = np.histogram(np.exp(-np.exp(-variates)), 10, (0, 1))[0]
        assert np.all(np.abs(bins - count / 10) < 5 * np.sqrt(count / 10))
    assert len({value for variates in samples for value in variates.ravel().tolist()}) > 3 * count - 10
