"""Whose place has been taken by another process: the lives on the board, compared with those that were seen before.

The table of live requests looks here before it takes in a text and with each heartbeat: what a process had that is dead
is lost, and a look costs a microsecond. Knows no requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...ipc.board import Row
from ...ipc.request_ids import output_of


@dataclass(frozen=True, slots=True)
class Replaced:
    """Engines whose scheduler, and outputs, that have died since the last look; there are `outputs_in_all`."""

    engines: frozenset[int]
    outputs: frozenset[int]
    outputs_in_all: int

    def had(self, engine: int, rid: int) -> bool:
        """Whether one of them had a request of this id that was given to this engine."""
        return engine in self.engines or output_of(rid, self.outputs_in_all) in self.outputs


class LivesWatch:
    """The lives of all schedulers and outputs, in the order of their numbers."""

    def __init__(self, schedulers: Sequence[Row] = (), outputs: Sequence[Row] = ()) -> None:
        """Those that stand on the board now are known."""
        self._rows = (*schedulers, *outputs)
        self._engines = len(schedulers)
        self._known = [row.life for row in self._rows]

    def look(self) -> Replaced | None:
        """Who has been replaced since the last look; None if nobody has. The dead have lost all they had."""
        lives = [row.life for row in self._rows]
        if lives == self._known:
            return None
        risen = [at for at, (life, known) in enumerate(zip(lives, self._known, strict=True)) if life != known]
        self._known = lives
        return Replaced(
            frozenset(at for at in risen if at < self._engines),
            frozenset(at - self._engines for at in risen if at >= self._engines),
            len(self._rows) - self._engines,
        )
