"""Where routers hear of the KV cache of each engine, as the board and the configuration tell."""

from __future__ import annotations

from typing import Any

from ...common.config import Config
from ...common.endpoints import filled_in, of_rank, reachable
from ...ipc.board import Board


def kv_sources(config: Config, board: Board) -> list[dict[str, Any]]:
    """A source for each engine whose publisher is there, in the form of GET /kv_event_sources."""
    if not config.kv_events:
        return []
    topic = filled_in(config.kv_events_topic, config.served_model_names[0], config.host, config.port)
    return [
        {
            "endpoint": _bound(config.kv_events_endpoint, rank, row["kv_event_port"]),
            "replay_endpoint": _bound(config.kv_replay_endpoint, rank, row["kv_event_replay_port"]) or None,
            "dp_rank": rank,
            "topic": topic,
            "block_size": config.block_size,
            "model": config.served_model_names[0],
            "encoding": config.kv_events_encoding,
            "hash": config.kv_events_hash,
            "incarnation": row["incarnation"],
        }
        for rank, row in enumerate(board.of_role("publisher"))
        if row["incarnation"]
    ]


def _bound(endpoint: str, rank: int, port: int) -> str:
    return reachable(of_rank(endpoint, rank), port) if endpoint else ""
