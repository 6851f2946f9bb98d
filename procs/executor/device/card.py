"""What the device path needs of a GPU beside tensors: one small interface.

cuda.py is a card, of AMD or NVIDIA. Tests have one on the CPU: with it all of the device path runs but for true
concurrency, and a graph is a function that is called again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import torch

Output = TypeVar("Output")


class Ended(Protocol):
    """When a copy has arrived."""

    def done(self) -> bool: ...

    def wait(self) -> None:
        """Block until it has, without taking a core."""
        ...


@dataclass(frozen=True, slots=True)
class Recording(Generic[Output]):
    """A graph: `replay` runs what was recorded, on the same memory, and leaves its results in `output`."""

    replay: Callable[[], None]
    output: Output


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Bytes of a card's memory: what it has, what nobody holds, what torch holds, the most that it ever held."""

    total: int
    free: int
    held_by_torch: int
    peak_of_torch: int

    @property
    def of_others(self) -> int:
        """What neither torch holds nor is free: the driver's, libraries', other processes'."""
        return max(0, self.total - self.free - self.held_by_torch)


class Card(Protocol):
    """One device. All work goes to its main stream, in order, but for copies to the host."""

    @property
    def device(self) -> torch.device: ...

    def host_memory(self, size: int) -> torch.Tensor:
        """So many bytes (uint8) of this machine's memory that the device can read and write by itself."""
        ...

    def fetch(self, source: torch.Tensor, into: torch.Tensor) -> Ended:
        """Copy a tensor to the host's memory as it is when the main stream gets here; what comes later need not wait.

        `source` must not be written before the copy has ended.
        """
        ...

    def warm_up(self, run: Callable[[], object]) -> None:
        """Run it once, away from the main stream, and wait for it: kernels are compiled, libraries set up."""
        ...

    def record(self, run: Callable[[], Output]) -> Recording[Output]:
        """Record what it does on the device, without doing it."""
        ...

    def memory(self) -> MemoryUse:
        """After all that was asked for has been done."""
        ...

    def forget_peak(self) -> None:
        """Give unused memory back, and count the peak from now on."""
        ...
