"""Questions to engines whether their prefix cache has been forgotten, until all have been answered.

The answer of an engine comes as the ending of an id. One that was lost, because a process on its way has died, is
asked for again under another id. Who calls: the table of live requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple, Protocol

from ...common.types import Finish
from ...ipc.messages import Ending
from .errors import Refusal
from .lives import Replaced


class Engines(Protocol):
    """Who is asked (router.py)."""

    @property
    def engines(self) -> int:
        """How many there are."""

    def reset_cache(self, engine: int, rid: int, force: bool) -> None:
        """Have an engine forget its prefix cache. The answer is the ending of `rid`."""


class _Asked(NamedTuple):
    engine: int
    force: bool
    answer: asyncio.Future[Ending]


class Resets:
    """The questions that have no answer yet, by the ids of their answers."""

    def __init__(self, engines: Engines, new_rid: Callable[[], int]) -> None:
        self._engines = engines
        self._new_rid = new_rid
        self._asked: dict[int, _Asked] = {}

    def __len__(self) -> int:
        return len(self._asked)

    async def ask(self, force: bool) -> Ending:
        """Have the prefix cache forgotten, and wait for all answers: STOP, or the first that is REJECTED.

        Raises Refusal when the process stops first. Who waits may go away: the answers are then passed over.
        """
        new = asyncio.get_running_loop().create_future
        asked = [_Asked(engine, force, new()) for engine in range(self._engines.engines)]
        for one in asked:
            self._send(one)
        endings: list[Ending] = await asyncio.gather(*[one.answer for one in asked])
        return next((ending for ending in endings if ending.finish is not Finish.STOP), endings[0])

    def _send(self, asked: _Asked) -> None:
        rid = self._new_rid()
        self._asked[rid] = asked
        self._engines.reset_cache(asked.engine, rid, asked.force)

    def take(self, ending: Ending) -> bool:
        """Take in an ending, if it is an answer; false if it is none."""
        asked = self._asked.pop(ending.rid, None)
        if asked is not None and not asked.answer.done():
            asked.answer.set_result(ending)
        return asked is not None

    def ask_again(self, replaced: Replaced) -> None:
        """Repeat the questions that the dead had, or whose answers they had."""
        for rid, asked in list(self._asked.items()):
            if replaced.had(asked.engine, rid):
                del self._asked[rid]
                self._send(asked)

    def fail(self, refusal: Refusal) -> None:
        """There will be no answers: who waits is given the reason instead."""
        for asked in self._asked.values():
            if not asked.answer.done():
                asked.answer.set_exception(refusal)
        self._asked.clear()
