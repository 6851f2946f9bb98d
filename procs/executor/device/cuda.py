"""A GPU by torch.cuda, which on ROCm is HIP. See card.Card.

Not run on a card yet: no machine with one was at hand when this was written. tests/gpu runs it where there is one.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from .card import Ended, MemoryUse, Output, Recording


class CudaCard:
    """The visible device with that number; the process's main stream on it is the current one."""

    def __init__(self, index: int) -> None:
        self.device = torch.device("cuda", index)
        torch.cuda.set_device(self.device)
        self._copies = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        self._pool = torch.cuda.graph_pool_handle()

    def host_memory(self, size: int) -> torch.Tensor:
        return torch.zeros(size, dtype=torch.uint8, pin_memory=True)

    def fetch(self, source: torch.Tensor, into: torch.Tensor) -> Ended:
        self._copies.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._copies):
            into.copy_(source, non_blocking=True)
            event = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call] # else a waiting thread spins
            event.record(self._copies)
        return _Event(event)

    def warm_up(self, run: Callable[[], object]) -> None:
        """On a side stream, as torch's documentation of graphs asks for."""
        main = torch.cuda.current_stream()
        side = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        side.wait_stream(main)
        with torch.cuda.stream(side):
            run()
        main.wait_stream(side)
        torch.cuda.synchronize(self.device)

    def record(self, run: Callable[[], Output]) -> Recording[Output]:
        """All graphs share one pool of memory: they are never replayed at the same time."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            output = run()
        return Recording(graph.replay, output)

    def memory(self) -> MemoryUse:
        torch.cuda.synchronize(self.device)
        free, total = torch.cuda.mem_get_info(self.device)
        held, peak = torch.cuda.memory_reserved(self.device), torch.cuda.max_memory_reserved(self.device)
        return MemoryUse(total, free, held, peak)

    def forget_peak(self) -> None:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(self.device)


class _Event:
    def __init__(self, event: torch.cuda.Event) -> None:
        self._event = event

    def done(self) -> bool:
        return bool(self._event.query())  # type: ignore[no-untyped-call]

    def wait(self) -> None:
        self._event.synchronize()
