"""The policy of restarts: who is started again, when, and when no more."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fourstroke.launch.restarts import LONGEST_DELAY_S, STEADY_S, Decision, Fate, Restarts, delay_s


def serving(most: int) -> Restarts:
    restarts = Restarts(most)
    restarts.served()
    return restarts


def test_delays() -> None:
    """The first restart comes at once, the next ones wait twice as long each, up to a limit."""
    assert [delay_s(deaths) for deaths in range(1, 7)] == [0, 0.5, 1, 2, 4, 8]
    assert delay_s(10**9) == LONGEST_DELAY_S


@pytest.mark.parametrize("name", ["executor0", "publisher3"])
@pytest.mark.parametrize("most", [0, 5])
def test_before_the_server_was_ready(name: str, most: int) -> None:
    """Until the server has been ready once, every death is its end."""
    restarts = Restarts(most)
    restarts.ready(name, 0)
    assert restarts.died(name, 3600) == Decision(Fate.END, 1)


@given(st.integers(0, 20), st.sampled_from(["ingest1", "scheduler0", "executor0", "output2", "publisher0"]))
def test_deaths_in_a_row(most: int, name: str) -> None:
    """So many are started again; after one more death a publisher is given up, and any other ends the server."""
    restarts = serving(most)
    for deaths in range(1, most + 1):
        assert restarts.died(name, 0) == Decision(Fate.AGAIN, deaths, delay_s(deaths))
    last = Fate.GIVEN_UP if name == "publisher0" else Fate.END
    assert restarts.died(name, 0) == Decision(last, most + 1)


@pytest.mark.parametrize(("ready_for_s", "deaths"), [(STEADY_S - 0.1, 2), (STEADY_S, 1)])
def test_a_steady_process_starts_a_new_row(ready_for_s: float, deaths: int) -> None:
    """Whether a process was ready for long enough decides, not how long it ran or how often it said so."""
    restarts = serving(5)
    restarts.died("output0", 0)
    restarts.ready("output0", 100)
    restarts.ready("output0", 100 + ready_for_s / 2)
    assert restarts.died("output0", 100 + ready_for_s).deaths == deaths


def test_readiness_dies_with_its_process() -> None:
    """One that never got ready does not profit from the time of the one before it."""
    restarts = serving(5)
    restarts.ready("output0", 0)
    assert restarts.died("output0", 5).deaths == 1
    assert restarts.died("output0", 100).deaths == 2


@given(st.lists(st.sampled_from(["executor0", "executor1", "output0"]), max_size=30))
def test_each_process_has_its_own_row(names: list[str]) -> None:
    """What others die of does not count."""
    restarts = serving(100)
    for at, name in enumerate(names):
        assert restarts.died(name, at).deaths == names[: at + 1].count(name)
