"""Noise: the published test vectors of Philox, and its independence of everything but seed and position."""

import numpy as np
import pytest

from fourstroke.procs.executor.noise import philox4x32, uniforms

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
    """A row's number is the same alone and among others, in any order."""
    seeds = np.array([0, 1, 2**63, 2**64 - 1, 7], np.uint64)
    positions = np.array([0, 5, 2**31, 1, 9], np.uint64)
    together = uniforms(seeds, positions)
    alone = [uniforms(seeds[i : i + 1], positions[i : i + 1])[0] for i in range(5)]
    assert together.tolist() == alone
    assert uniforms(seeds[::-1], positions[::-1]).tolist() == alone[::-1]


def test_uniform() -> None:
    """Numbers are in [0, 1), use more than 32 bits, and fill ten bins evenly; seeds and positions both matter."""
    count = 20_000
    along = uniforms(np.full(count, 3, np.uint64), np.arange(count, dtype=np.uint64))
    across = uniforms(np.arange(count, dtype=np.uint64), np.full(count, 3, np.uint64))
    for numbers in (along, across):
        assert numbers.min() >= 0
        assert numbers.max() < 1
        bins = np.histogram(numbers, 10, (0, 1))[0]
        assert np.all(np.abs(bins - count / 10) < 5 * np.sqrt(count / 10))
        assert np.any(numbers * 2**32 % 1 != 0)
    assert len({*along.tolist(), *across.tolist()}) == 2 * count - 1
