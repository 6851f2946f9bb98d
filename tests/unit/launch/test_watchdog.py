"""Who hangs, from what is seen of each process once a second."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fourstroke.common.config import Config
from fourstroke.launch.watchdog import AWAY_S, Signs, Watchdog

CONFIG = Config(
    model="m", served_model_names=("m",), hang_timeout_s=10, step_timeout_s=60, start_timeout_s=30
)  # looks are whole seconds apart


def watched(seen: Iterable[Signs], config: Config = CONFIG, every_s: float = 1) -> list[str]:
    """What a watchdog says at each of many looks at one process."""
    watchdog = Watchdog(config)
    looks = [watchdog.look(at * every_s, {"executor0": signs}) for at, signs in enumerate(seen)]
    return [hangs["executor0"].cause if hangs else "" for hangs in looks]


def first_verdict(seen: Iterable[Signs]) -> tuple[int, str]:
    """When it says something for the first time, and what."""
    return next((at, said) for at, said in enumerate(watched(seen)) if said)


def test_a_heart_that_beats() -> None:
    """A loop that comes round is left alone, for ever."""
    assert not any(watched(Signs(1, True, heartbeat=at // 9) for at in range(500)))


def test_a_heart_that_stands_still() -> None:
    """It is a hang once the time is over, counted from when it was first seen so."""
    at, said = first_verdict(Signs(1, True, heartbeat=min(at, 20)) for at in range(100))
    assert at == 31
    assert said == "was in one turn of its main loop for longer than --hang-timeout 10 s"


def test_a_step_that_computes() -> None:
    """A step may be as long as --step-timeout while CPU time rises."""
    at, said = first_verdict(Signs(1, True, 0, step=7, cpu_ticks=at // 9) for at in range(100))
    assert at == 61
    assert said == "was in one step for longer than --step-timeout 60 s"


def test_a_step_that_does_not_compute() -> None:
    """A step without CPU time hangs."""
    at, said = first_verdict(Signs(1, True, 0, step=7, cpu_ticks=min(at, 20)) for at in range(100))
    assert at == 31
    assert said == "was in a step without using the CPU for longer than --hang-timeout 10 s"


def test_a_step_on_a_device() -> None:
    """Where the loop goes on while a step runs, the step must end nevertheless."""
    assert first_verdict(Signs(1, True, heartbeat=at, step=7) for at in range(100))[0] == 61


def test_many_steps() -> None:
    """Steps that follow each other are many short ones."""
    assert not any(watched(Signs(1, True, 0, step=1 + at // 9) for at in range(500)))


def test_a_start() -> None:
    """A start may take its time, which reports do not prolong."""
    at, said = first_verdict(Signs(1, ready=False, heartbeat=at) for at in range(100))
    assert (at, said) == (31, "was not ready within --start-timeout 30 s")


def test_a_start_that_is_stopped() -> None:
    """No heart beats yet, but the kernel tells that a signal has stopped it; a short stop does no harm."""
    at, said = first_verdict(Signs(1, ready=False, stopped=at >= 5) for at in range(100))
    assert (at, said) == (16, "was stopped while it started for longer than --hang-timeout 10 s")
    assert first_verdict(Signs(1, ready=False, stopped=at % 9 > 0) for at in range(100))[0] == 31


def test_the_next_process() -> None:
    """A process that takes another's place has all its time, whatever the board still says of the dead one."""
    seen = [Signs(1 + at // 9, True, heartbeat=3, step=4) for at in range(100)]
    assert not any(watched(seen))
    assert not any(watched([Signs(1 + at // 29, ready=False) for at in range(200)]))


def test_never() -> None:
    """A --hang-timeout of 0 allows everything but endless steps and starts."""
    config = Config(model="m", served_model_names=("m",), hang_timeout_s=0)
    assert not any(watched([Signs(1, True)] * 5000, config))


@pytest.mark.parametrize("gap_s", [AWAY_S + 1, 3600])
@given(before=st.integers(0, 9))
def test_who_was_away_blames_nobody(gap_s: float, before: int) -> None:
    """After a time in which nobody looked, a process that stands still has the whole time again."""
    watchdog, signs = Watchdog(CONFIG), {"output0": Signs(1, True)}
    for at in range(before + 1):
        assert not watchdog.look(at, signs)
    back_s = before + gap_s
    assert not any(watchdog.look(back_s + at, signs) for at in range(11))
    assert watchdog.look(back_s + 11, signs)


def test_how_long() -> None:
    """A hang tells how long it has been one."""
    watchdog = Watchdog(CONFIG)
    looks = [watchdog.look(at, {"a0": Signs(1, True, min(at, 20))}) for at in range(40)]
    assert [look["a0"].seconds for look in looks if look] == [*range(11, 20)]


def test_each_by_itself() -> None:
    """One that stands still is told from those that do not."""
    watchdog = Watchdog(CONFIG)
    said = [watchdog.look(at, {"a0": Signs(1, True, at), "b0": Signs(2, True)}) for at in range(20)]
    assert {name for verdicts in said for name in verdicts} == {"b0"}
