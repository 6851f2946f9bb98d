"""What stands around a scheduler in its model: a gate that has moods, and a subscriber to the cache's events."""

from __future__ import annotations

import random
from collections import Counter

from fourstroke.ipc.events import Cleared, Removed, Stored
from fourstroke.procs.scheduler.align.readiness import Readiness, Rule


class Moody:
    """A gate that refuses at random, but no more than `most` times running."""

    def __init__(self, most: int, seed: int) -> None:
        self.last = Rule.OPEN
        self.fired: Counter[Rule] = Counter()
        self.errors = 0
        self.refused = 0
        self._most = most
        self._random = random.Random(seed)

    def allow(self, view: Readiness, now: float) -> bool:
        refuses = self.refused < self._most and self._random.random() < 0.5
        self.refused = self.refused + 1 if refuses else 0
        return not refuses


class Events:
    """What a subscriber to the cache's events knows: digests, and the parent of each."""

    def __init__(self) -> None:
        self.parents: dict[bytes, bytes | None] = {}

    def hear(self, event: Stored | Removed | Cleared) -> None:
        match event:
            case Stored():
                parent = event.parent
                for digest in event.digests:
                    assert digest not in self.parents, "stored twice"
                    assert parent is None or parent in self.parents, "stored before its parent"
                    self.parents[digest] = parent
                    parent = digest
            case Removed():
                for digest in event.digests:
                    del self.parents[digest]
                    assert digest not in self.parents.values(), "removed before a child"
            case Cleared():
                self.parents.clear()
