"""Forgetting the prefix cache, on demand: at once, or when what runs has ended."""

from __future__ import annotations

from ....common.types import Finish
from ....ipc.messages import Detail, Opened, ResetCache
from ..lives import Lives
from ..results.emission import Emission, end_of
from ..rows import RowTable
from ..state.state_slots import StateSlots
from ..transfer.connector import Connector


class Resets:
    """The resets that were asked for. While some are pending nobody may be admitted."""

    def __init__(self, table: RowTable, lives: Lives, connector: Connector, state_slots: StateSlots) -> None:
        self._table = table
        self._lives = lives
        self._connector = connector
        self._state_slots = state_slots
        self._pending: list[ResetCache] = []

    @property
    def pending(self) -> bool:
        return bool(self._pending)

    def ask(self, message: ResetCache) -> list[Emission]:
        """Take in a reset; returns the answers that can be given now."""
        live = len(self._lives.requests) + self._connector.open
        if live and not message.force:
            return [_answer(message, Finish.REJECTED, f"{live} requests or transfers are not finished")]
        self._pending.append(message)
        return self.done_if_drained()

    def done_if_drained(self) -> list[Emission]:
        """Do what was asked for if nothing runs any more; returns the answers."""
        if not self._pending or self._table.taken or self._connector.open:
            return []
        self.forget()
        done, self._pending = self._pending, []
        return [_answer(message, Finish.STOP) for message in done]

    def forget(self) -> None:
        """Forget the cache and all state that belongs to it. Nothing may run."""
        self._lives.let_siblings_go()
        self._table.pool.clear()
        self._state_slots.clear()


def _answer(message: ResetCache, finish: Finish, text: str = "") -> Emission:
    opened = Opened(message.rid, 0, message.ticket)
    return Emission((opened,), ended=end_of(message.rid, finish, Detail(message.rid, text) if text else None))
