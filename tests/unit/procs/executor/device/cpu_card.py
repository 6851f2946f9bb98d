"""A card on the CPU: see device/card.py. Kernels are interpreted, a graph is a function that is called again."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

import torch

from fourstroke.procs.executor.device.card import Ended, MemoryUse

GIB = 1 << 30


@dataclass
class Copy:
    """A copy of what was there when it was asked for, which is made when the test says so."""

    source: torch.Tensor
    into: torch.Tensor
    arrived: threading.Event = field(default_factory=threading.Event)

    def done(self) -> bool:
        return self.arrived.is_set()

    def wait(self) -> None:
        self.arrived.wait()

    def arrive(self) -> None:
        with torch.inference_mode():
            self.into.copy_(self.source)
        self.arrived.set()


class Graph:
    """A function that is called again, once a replay; a real graph's output lies at the same place each time."""

    def __init__(self, card: CpuCard, run: Callable[[], Any]) -> None:
        self._card = card
        self._run = run
        self.output: Any = None

    def replay(self) -> None:
        self._card.replayed += 1
        fresh = self._run()
        if self.output is None:
            self.output = fresh
        for each in fields(fresh):
            getattr(self.output, each.name).copy_(getattr(fresh, each.name))


class CpuCard:
    """With `holding` copies wait for `release`, else they arrive at once. Without `warm` nothing runs in advance."""

    def __init__(self, holding: bool = False, warm: bool = True) -> None:
        self.device = torch.device("cpu")
        self.replayed = 0
        self._holding = holding
        self._warm = warm
        self._held: deque[Copy] = deque()

    def host_memory(self, size: int) -> torch.Tensor:
        return torch.zeros(size, dtype=torch.uint8)

    def fetch(self, source: torch.Tensor, into: torch.Tensor) -> Ended:
        copy = Copy(source.clone(), into)
        self._held.append(copy)
        if not self._holding:
            self.release()
        return copy

    def release(self) -> None:
        """Let the oldest copy arrive."""
        self._held.popleft().arrive()

    def warm_up(self, run: Callable[[], object]) -> None:
        if self._warm:
            run()

    def record(self, run: Callable[[], Any]) -> Any:
        return Graph(self, run)

    def memory(self) -> MemoryUse:
        return MemoryUse(total=GIB, free=GIB // 2, held_by_torch=GIB // 4, peak_of_torch=GIB // 4)

    def forget_peak(self) -> None:
        pass
