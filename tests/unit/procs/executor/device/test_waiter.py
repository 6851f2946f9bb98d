"""The end of a copy wakes a poll."""

import select
import threading

from fourstroke.procs.executor.device.waiter import Waiter


class Gate:
    """Something that ends when the test says so."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def open(self) -> None:
        self._event.set()

    def done(self) -> bool:
        return self._event.is_set()

    def wait(self) -> None:
        self._event.wait()


def readable(waiter: Waiter, timeout_s: float = 0.0) -> bool:
    return bool(select.select([waiter], [], [], timeout_s)[0])


def test_it_is_readable_once_something_has_ended() -> None:
    """Not before; and no more after it was cleared."""
    waiter, gates = Waiter(), [Gate(), Gate()]
    for gate in gates:
        waiter.watch(gate)
        assert not readable(waiter)
    for gate in gates:
        gate.open()
        assert readable(waiter, 10)
        waiter.clear()
        assert not readable(waiter)


def test_clearing_nothing_is_harmless() -> None:
    """It may be cleared whenever somebody looks."""
    waiter = Waiter()
    waiter.clear()
    assert not readable(waiter)
