"""What the routes of this server share: configuration, tokenizer, board, the table of live requests."""

from __future__ import annotations

import time

from ...common.config import Config
from ...common.errors import InvalidRequest
from ...ipc.board import Board, Row
from ...ipc.request_ids import first_rid
from .admitted import Admitted
from .body import Body
from .dialect import Dialect
from .errors import model_not_found, not_ready
from .health import Health, ModelLimits, look, model_limits
from .lives import LivesWatch
from .prompts import Prompts
from .router import Router
from .siblings import Siblings
from .structure import Grammars
from .table import Table
from .token_names import TokenNames


class Service:
    """One HTTP server in front of all engines."""

    def __init__(
        self, config: Config, prompts: Prompts, board: Board, row: Row, router: Router, index: int, life: int = 0
    ) -> None:
        """`index` and `life` are those of this process among the ingests (ipc/request_ids.py)."""
        self.config = config
        self.prompts = prompts
        self.names = TokenNames(prompts.tokenizer)
        self.grammars = Grammars(prompts.tokenizer.vocabulary)
        self.dialect = Dialect.of(config.tool_call_parser, config.reasoning_parser, prompts.tokenizer)
        self.board = board
        self.row = row
        self.router = router
        others = [other for other in board.of_role(row.role) if other is not row]
        capacity = config.max_queue + config.data_parallel_size * config.max_num_seqs
        lives = LivesWatch(board.of_role("scheduler"), board.of_role("output"))
        self.table = Table(router, first_rid(index, life), capacity, Admitted(row, others), lives)
        self.siblings = Siblings(index, self.table.abort)
        self.draining = False
        self.started = int(time.time())

    @property
    def health(self) -> Health:
        return look(self.board, self.draining)

    def limits(self) -> ModelLimits:
        """What the model allows. Raises a 503 before the server is ready first, and when it drains."""
        found = self.health
        if not found.accepts:
            raise not_ready(found.status)
        return model_limits(self.board)

    def model_name(self, body: Body) -> str:
        """The served name that a request asks for, the first if it names none. Raises a 404 for any other."""
        name = body.get("model")
        if name is None:
            return self.config.served_model_names[0]
        if not isinstance(name, str):
            raise InvalidRequest("model must be a string", "model")
        return self.served(name)

    def served(self, name: str) -> str:
        """A name, if it is served. Raises a 404 if not."""
        served = self.config.served_model_names
        if name not in served:
            raise model_not_found(name, served)
        return name

    def update_row(self) -> None:
        """Bring this process's own gauges up to date."""
        self.row["prompt_ring_tokens"] = self.router.ring_tokens
