"""The loop under the supervisor: what it calls, and when it returns."""

import os
import signal
from collections.abc import Iterator

import pytest

from fourstroke.launch.event_loop import EventLoop, StopSignals


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    read, write = os.pipe()
    yield read, write
    for fd in (read, write):
        os.close(fd)


def test_until_holds_already() -> None:
    """A condition that holds needs no event."""
    assert EventLoop().until(lambda: True, 0)


def test_timeout() -> None:
    """A condition that does not come about is given up."""
    assert not EventLoop().until(lambda: False, 0.01)


def test_event(pipe: tuple[int, int]) -> None:
    """An event calls its callback, and the condition is tested after it."""
    read, write = pipe
    loop, seen = EventLoop(), []
    loop.add(read, lambda: seen.append(os.read(read, 10)))
    os.write(write, b"a")
    assert loop.until(lambda: bool(seen))
    assert seen == [b"a"]


def test_removed_in_the_same_round(pipe: tuple[int, int]) -> None:
    """A source that a callback removes is not called any more, even if it was ready as well."""
    read, write = pipe
    other_read, other_write = os.pipe()
    loop, calls = EventLoop(), []

    def first(source: int, other: int) -> None:
        calls.append(source)
        os.read(source, 10)
        loop.remove(other)

    loop.add(read, lambda: first(read, other_read))
    loop.add(other_read, lambda: first(other_read, read))
    os.write(write, b"a")
    os.write(other_write, b"a")
    assert not loop.until(lambda: len(calls) > 1, 0.05)
    assert len(calls) == 1
    os.close(other_read)
    os.close(other_write)


def test_timers() -> None:
    """What is to be called later is called in time, in the order of the times; those of one time as they were asked."""
    loop, called = EventLoop(), list[str]()
    for delay_s, name in ((0.02, "late"), (0, "first"), (0, "second"), (3600, "never")):
        loop.after(delay_s, lambda name=name: called.append(name))
    assert loop.until(lambda: len(called) == 3, 10)
    assert called == ["first", "second", "late"]


def test_a_timer_that_sets_the_next() -> None:
    """A timer may set itself again; what is forgotten is not called."""
    loop, called = EventLoop(), list[int]()

    def again() -> None:
        called.append(len(called))
        loop.after(0, again)

    loop.after(0, again)
    assert loop.until(lambda: len(called) > 2, 10)
    loop.forget_timers()
    assert not loop.until(lambda: len(called) > 3, 0.02)


def test_signals_wake_the_loop() -> None:
    """Stop signals arrive as names on a file descriptor, each one counted, and the old handlers come back."""
    before = signal.getsignal(signal.SIGTERM)
    inherited = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it is ignored, and stays so
    signals, loop, names = StopSignals(), EventLoop(), []
    loop.add(signals.fileno(), lambda: names.extend(signals.read()))
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        os.kill(os.getpid(), number)
    assert loop.until(lambda: signals.count == 3, 10)
    signals.close()
    assert sorted(names) == ["SIGHUP", "SIGINT", "SIGTERM"]
    assert signal.getsignal(signal.SIGTERM) is before
    signal.signal(signal.SIGHUP, inherited)


def test_nohup_is_respected() -> None:
    """A process that was started to survive its terminal does."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signals = StopSignals()
    os.kill(os.getpid(), signal.SIGHUP)
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    signals.close()
    signal.signal(signal.SIGHUP, before)
