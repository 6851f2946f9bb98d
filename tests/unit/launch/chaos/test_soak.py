"""Trends of what a server holds."""

from __future__ import annotations

import pytest

from fourstroke.launch.chaos.books import Holdings
from fourstroke.launch.chaos.soak import SAMPLE_EVERY_S, Samples, growing, trend

MIB = 1 << 20


def test_a_line() -> None:
    """Numbers on a line have its slope; what came before the caches were warm does not count."""
    found = trend([(float(at), 1000 + 2 * at) for at in range(0, 400, 10)])
    assert found.an_hour == pytest.approx(7200)
    assert found.grown == pytest.approx(2 * 290)
    warmed = trend([(float(at), 5000 if at >= 100 else at) for at in range(0, 400, 10)])
    assert (warmed.first, warmed.last, round(warmed.an_hour)) == (5000, 5000, 0)


def test_one_number() -> None:
    """Has no slope."""
    assert trend([(7.0, 3)]).grown == 0


def sampled(rss_an_hour: float, segments_last: int = 5) -> Samples:
    """What is seen in an hour of a process that grows so fast."""
    now_s = 0.0

    def take() -> Holdings:
        rss = int(100 * MIB + rss_an_hour * now_s / 3600)
        return Holdings({"output0": 9}, {"output0": rss}, {"board": segments_last if now_s > 3500 else 5})

    samples = Samples(take)
    while now_s < 3600:
        samples.look(now_s)
        samples.look(now_s + SAMPLE_EVERY_S / 2)  # too early: nothing is taken
        now_s += SAMPLE_EVERY_S
    return samples


def test_growing() -> None:
    """Memory that grows is told, a little noise is not; nor may shared memory change at all."""
    assert growing(sampled(0)) == []
    assert growing(sampled(2 * MIB)) == []
    (found,) = growing(sampled(60 * MIB))
    assert found == "output0 grows by 60.0 MiB an hour"
    assert len(growing(sampled(0, segments_last=6))) == 1


def test_samples_are_spaced() -> None:
    """However often one looks."""
    taken: list[float] = []

    def take() -> Holdings:
        taken.append(1)
        return Holdings({}, {}, {})

    samples = Samples(take)
    for at in range(100):
        samples.look(at * SAMPLE_EVERY_S / 10)
    assert len(taken) == 10
