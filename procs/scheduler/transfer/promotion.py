"""What becomes of requests whose KV has come from elsewhere, or has not."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....common.types import Finish, TransferOutcome
from ....ipc.messages import Detail
from ..cache.prefix_cache import PrefixCache
from ..lives import Lives
from ..request import Phase, Request
from ..results.emission import Emission, last_word
from ..results.settling import Settling
from ..rows import RowTable
from ..statistics import Statistics
from .connector import Connector
from .reports import Finished


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
        emissions, received = [], []
        for finished in self._connector.take_finished():
            if not self._lives.unfence((finished.rid, finished.epoch)):
                request = self._lives.requests[finished.rid]
                assert request.phase is Phase.PARKED and request.attempt == finished.epoch
                if finished.outcome is TransferOutcome.RECEIVED:
                    received.append(request)
                else:
                    emissions += self._fail(request, finished, now)
        return emissions + self._promote(received, now) if received else emissions

    def _promote(self, requests: Sequence[Request], now: float) -> list[Emission]:
        """The KV of parked requests is there: they go on as if it had been computed here.

        A first token that came with it has no log-probability: who wants one has it sampled here.
        """
        table = self._table
        facts = [
            (one.row, self._connector.match(one.prompt_tokens, remote), one.prompt_tokens, remote.first_token)
            for one in requests
            if (remote := one.remote) is not None
        ]
        rows, received, prompt, first = np.array(facts).T
        has_room = (table.length[rows] < table.token_limit[rows]) & ~table.wants_logprobs[rows]
        has_token = has_room & (first >= 0) & (received >= prompt) & (prompt == table.length[rows])
        table.unpark(rows)
        table.committed[rows] = np.where(has_token, received, np.minimum(received, table.target[rows] - 1))
        table.begun[rows] = table.committed[rows]
        self._cache.publish(rows)
        if not has_token.any():
            return []
        return [self._settling.take_first(rows[has_token], first[has_token].astype(np.int32), now)]

    def _fail(self, request: Request, finished: Finished, now: float) -> list[Emission]:
        """The request goes back to its place, to be prefilled here, or ends."""
        self._statistics.transfers_failed += 1
        self._lives.receive_failed(request)
        if not self._connector.fail:
            return []
        self._lives.end(request, Finish.ERROR, now)
        text = f"the KV of its prompt did not arrive: {finished.detail}"
        return [last_word(request, Finish.ERROR, Detail(request.rid, text))]
