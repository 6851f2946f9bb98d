"""Orders about transfers that wait for open steps: what these still write is not touched by a transfer.

A request that ends or is preempted leaves steps behind that are planned and not settled. Its blocks may be sent,
or given to a request that receives into them, before the last of these steps has run. The core knows which those are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from ....ipc.messages import KvTransfer


class HeldOrders:
    """Orders, each with the number of the step that it waits for; they go out in the order in which they came."""

    def __init__(self) -> None:
        self._held: deque[tuple[int, KvTransfer]] = deque()

    def put(self, orders: Iterable[KvTransfer], after: int) -> None:
        """Orders that wait until step `after` has settled; -1 is for none."""
        self._held.extend((after, order) for order in orders)

    def take(self, unsettled: float) -> list[KvTransfer]:
        """Those that may go out when `unsettled` is the first step that has not settled."""
        orders = []
        while self._held and self._held[0][0] < unsettled:
            orders.append(self._held.popleft()[1])
        return orders

    def forget(self) -> None:
        """The executor is a new one, which knows of no transfer."""
        self._held.clear()
