"""How much work each engine has, by which ingest has given it: what every ingest's router reads.

Layout: int64 [ingests, engines], tokens still to compute. Ingest i alone writes row i; all read all. So an
ingest that has had nothing yet knows which engine the others keep busy. What the numbers mean is the router's affair.
"""

from __future__ import annotations

import numpy as np

LOADS = "loads"
"""The segment of the loads."""


def loads_bytes(ingests: int, engines: int) -> int:
    """The memory that the loads take."""
    return 8 * ingests * engines


class Loads:
    """The view of one ingest, over zeroed memory of at least loads_bytes(ingests, engines) bytes."""

    def __init__(self, memory: memoryview | bytearray, ingests: int, engines: int, own: int) -> None:
        """`own` is this ingest's number. Its row begins at nothing, whatever one before it has left there."""
        self._all = np.frombuffer(memory, np.int64, ingests * engines).reshape(ingests, engines)
        self._own = self._all[own]
        self._own[:] = 0

    @classmethod
    def alone(cls, engines: int) -> Loads:
        """Those of an ingest that has no others beside it."""
        return cls(bytearray(loads_bytes(1, engines)), 1, engines, 0)

    def add(self, engine: int, tokens: int) -> None:
        """This ingest has given an engine so much work; what is done is taken back with a negative number."""
        self._own[engine] += tokens

    @property
    def totals(self) -> list[int]:
        """The work of each engine, of all ingests together."""
        found: list[int] = self._all.sum(axis=0).tolist()
        return found
