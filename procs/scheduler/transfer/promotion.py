"""What becomes of requests whose KV has come from elsewhere, or has not."""

from __future__ import annotations

import numpy as np

from ....common.types import Finish, TransferOutcome
from ....ipc.messages import Detail, TransferReport
from ..cache.prefix_cache import PrefixCache
from ..lives import Lives
from ..request import Phase, Request
from ..results.emission import Emission, last_word
from ..results.settling import Settling
from ..rows import NO_FIRST_TOKEN, Rows, RowTable
from ..statistics import Statistics
from .connector import Connector

_RECEIVED = TransferOutcome.RECEIVED


class Promotion:
    """Takes up finished transfers, before a plan and outside all gates."""

    def __init__(
        self,
        table: RowTable,
        lives: Lives,
        cache: PrefixCache,
        connector: Connector,
        settling: Settling,
        statistics: Statistics,
    ) -> None:
        self._table = table
        self._lives = lives
        self._cache = cache
        self._connector = connector
        self._settling = settling
        self._statistics = statistics

    def take_finished(self, now: float) -> list[Emission]:
        """Promote the requests whose KV has come, send those back whose has not, and free what was sent."""
        finished, requests = self._connector.take_finished(), self._lives.requests
        received = [requests[one.rid].row for one in finished if one.outcome is _RECEIVED]  # nothing is fenced for them
        others = [one for one in finished if one.outcome is not _RECEIVED]
        emissions = [emission for one in others for emission in self._take_back(one, now)]
        return emissions + self._promote(np.array(received), now) if received else emissions

    def _promote(self, rows: Rows, now: float) -> list[Emission]:
        """The KV of parked rows is there: they go on as if it had been computed here."""
        table = self._table
        table.unpark(rows)
        self._cache.publish(rows)
        has_token = table.first_token[rows] != NO_FIRST_TOKEN
        if not has_token.any():
            return []
        rows = rows[has_token]
        return [self._settling.take_first(rows, table.first_token[rows], now)]

    def _take_back(self, finished: TransferReport, now: float) -> list[Emission]:
        """A transfer is over that brought nothing: blocks that were fenced for it are free, or it has failed."""
        if self._lives.unfence((finished.rid, finished.epoch)):
            return []
        request = self._lives.requests[finished.rid]
        assert request.phase is Phase.PARKED and request.attempt == finished.epoch
        return self._fail(request, finished, now)

    def _fail(self, request: Request, finished: TransferReport, now: float) -> list[Emission]:
        """The request goes back to its place, to be prefilled here, or ends."""
        self._statistics.transfers_failed += 1
        self._lives.receive_failed(request)
        if not self._connector.fail:
            return []
        self._lives.end(request, Finish.ERROR, now)
        text = f"the KV of its prompt did not arrive: {finished.detail}"
        return [last_word(request, Finish.ERROR, Detail(request.rid, text))]
