"""Requests whose KV another engine has or wants, for tests of the core."""

from __future__ import annotations

from fourstroke.common.types import TransferAction
from fourstroke.ipc.messages import RemoteKv
from fourstroke.procs.scheduler.planning.step import OpenStep
from fourstroke.procs.scheduler.request import Phase
from fourstroke.procs.scheduler.transfer.connector import Connector, Role

from .driver import Driver

FOR_OTHERS = RemoteKv(prefilled=False, decoded=True)


def elsewhere(first_token: int = -1, drafts: tuple[int, ...] = ()) -> RemoteKv:
    """A prompt that another engine has prefilled, and perhaps what it sampled behind it."""
    return RemoteKv(True, False, host="far:1", transfer=42, first_token=first_token, drafts=drafts)


class Partly(Connector):
    """Of a prompt so long so much exists elsewhere."""

    def __init__(self, parts: dict[int, int]) -> None:
        super().__init__(Role(consumer=True))
        self._parts = parts

    def match(self, prompt_tokens: int, remote: RemoteKv | None) -> int:
        return min(super().match(prompt_tokens, remote), self._parts[prompt_tokens])


def consumer(**setup) -> Driver:
    return Driver(**{"connector": Connector(Role(consumer=True)), **setup})


def producer(**setup) -> Driver:
    return Driver(connector=Connector(Role(producer=True), host="here:1"), **setup)


def prompt(rid: int, tokens: int) -> list[int]:
    """A prompt of its own for each request."""
    return [100 * rid + place for place in range(tokens)]


def rids(driver: Driver, step: OpenStep | None) -> list[int]:
    """The requests of a step's rows; none of no step."""
    return [] if step is None else driver.core.table.rid[step.rows].tolist()


def row_of(driver: Driver, rid: int) -> int:
    request = driver.request(rid)
    assert request.phase in (Phase.RUNNING, Phase.PARKED), "it has no row"
    return request.row


def blocks_of(driver: Driver, rid: int) -> list[int]:
    row = row_of(driver, rid)
    return driver.core.table.tables[row, : driver.core.table.blocks[row]].tolist()


def actions(driver: Driver) -> list[tuple[int, TransferAction]]:
    return [(order.rid, order.action) for order in driver.orders]
