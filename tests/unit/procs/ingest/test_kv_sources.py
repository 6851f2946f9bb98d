"""Where routers are sent: a source for each engine, with bound ports."""

from fourstroke.common.config import Config
from fourstroke.ipc.board import Board, board_bytes
from fourstroke.procs.ingest.kv_sources import kv_sources

NAMES = ("publisher0", "publisher1")
CONFIG = {"model": "m", "served_model_names": ("name", "alias"), "data_parallel_size": 2}


def board() -> Board:
    made = Board(bytearray(board_bytes(2)), NAMES)
    for number, name in enumerate(NAMES):
        row = made.row(name)
        row["incarnation"], row["kv_event_port"], row["kv_event_replay_port"] = 70 + number, 100 + number, 200 + number
    return made


def test_a_source_for_each_engine():
    """Ports are those that were bound, other facts those of the configuration."""
    config = Config(**CONFIG, kv_events=True, kv_events_endpoint="tcp://10.0.0.7:0", kv_events_topic="kv@{model}")
    first, second = kv_sources(config, board())
    assert first == {
        "endpoint": "tcp://10.0.0.7:100",
        "replay_endpoint": "tcp://127.0.0.1:200",
        "dp_rank": 0,
        "topic": "kv@name",
        "block_size": 16,
        "model": "name",
        "encoding": "map",
        "hash": "sha256_cbor",
        "incarnation": 70,
    }
    assert (second["endpoint"], second["dp_rank"], second["incarnation"]) == ("tcp://10.0.0.7:101", 1, 71)


def test_no_source():
    """Without events, without replay, and of an engine whose publisher is not there."""
    assert kv_sources(Config(**CONFIG), board()) == []
    config = Config(**CONFIG, kv_events=True, kv_events_replay_endpoint="")
    some = board()
    some.row("publisher1")["incarnation"] = 0
    (only,) = kv_sources(config, some)
    assert (only["dp_rank"], only["replay_endpoint"]) == (0, None)
