"""The plan of blows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fourstroke.launch.chaos.blows import KILL, STOP, Blow, Recovery, plan_blows

NAMES = ("executor0", "scheduler0", "output0")


@given(st.integers(), st.floats(1, 500), st.floats(0.5, 20))
def test_a_plan(seed: int, seconds: float, every_s: float) -> None:
    """As many blows as fit, in order, within the time; nobody is hit twice before everybody was hit once."""
    blows = plan_blows(NAMES, seconds, every_s, seed)
    assert len(blows) == int(seconds / every_s)
    times = [blow.at_s for blow in blows]
    assert times == sorted(times) and all(0 <= at < seconds for at in times)
    rounds = [{blow.name for blow in blows[at : at + 3]} for at in range(0, len(blows) - 2, 3)]
    assert all(names == set(NAMES) for names in rounds)
    assert blows == plan_blows(NAMES, seconds, every_s, seed)


def test_seeds_differ() -> None:
    """A quarter of the blows are stops, and another seed makes another plan."""
    blows = plan_blows(NAMES, 100, 1, 0)
    assert [blow.signal for blow in blows].count(STOP) == 25
    assert blows != plan_blows(NAMES, 100, 1, 1)


def test_nobody_to_hit() -> None:
    with pytest.raises(ValueError, match="nobody"):
        plan_blows((), 10, 1, 0)


def test_a_recovery() -> None:
    """Takes from the blow to a process that is ready; one without an end takes no time that could be told."""
    blow = Blow(0.0, "output0", KILL)
    assert Recovery(blow, 2.0, 3.5).took_s == 1.5
    assert Recovery(blow, 2.0, None).took_s is None
