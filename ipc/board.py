"""The board: one row of numbers for each process, in shared memory, written by that process alone.

/metrics, /health, the supervisor and whoever looks at a running server read it; reading costs the
engine nothing. Every role's columns are declared here, with their meaning: this table is the list of
metrics. Values are int64; `_seconds` metrics are kept in nanoseconds and shown in seconds.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ..common.types import State, role_of

_WORDS = 64


@dataclass(frozen=True, slots=True)
class Column:
    """One number of a process. `kind` is Prometheus'; an `info` is a fact and not a metric."""

    name: str
    kind: Literal["counter", "gauge", "info"]
    help: str

    @property
    def in_nanoseconds(self) -> bool:
        return self.name.endswith("_seconds")


_EVERY_ROLE = (
    Column("state", "info", "A State"),
    Column("pid", "info", "Process id"),
    Column("heartbeat", "info", "Monotonic clock at the last pass of the main loop, ns"),
    Column("restarts", "counter", "Times that it died and another process took its place"),
    Column("bad_frames", "counter", "Frames on internal wires that were no message and were dropped"),
)

COLUMNS: dict[str, tuple[Column, ...]] = {
    "ingest": _EVERY_ROLE
    + (
        Column("http_requests", "counter", "HTTP requests to routes that generate"),
        Column("http_refused", "counter", "Requests to generate that were refused with a 4xx"),
        Column("requests_live", "gauge", "Choices that ingest is waiting for"),
        Column("requests_admitted", "gauge", "These and those that are being tokenised: what --max-queue limits"),
        Column("prompt_ring_tokens", "gauge", "Tokens in the prompt ring"),
    ),
    "scheduler": _EVERY_ROLE
    + (
        Column("requests_running", "gauge", "Requests that hold KV blocks"),
        Column("requests_waiting", "gauge", "Requests that wait for admission"),
        Column("requests_parked", "gauge", "Requests that wait for their KV from another engine"),
        Column("requests", "counter", "Requests submitted"),
        Column("requests_finished", "counter", "Requests that had been accepted and have ended"),
        Column("requests_rejected", "counter", "Requests that can never run"),
        Column("admissions", "counter", "Requests admitted, those that came back after a preemption not counted"),
        Column("queue_seconds", "counter", "Time that admitted requests had waited"),
        Column("preemptions", "counter", "Requests that lost their blocks and started again"),
        Column("recomputed_tokens", "counter", "Tokens computed again after a preemption"),
        Column("prompt_tokens", "counter", "Tokens of prefills planned, those computed again included"),
        Column("generation_tokens", "counter", "Tokens generated, behind a stop string included"),
        Column("steps_planned", "counter", "Steps planned"),
        Column("attention_pairs", "counter", "Pairs of a query and a key in planned steps: attention's arithmetic"),
        Column("kv_tokens_read", "counter", "Tokens of the KV cache that planned steps read, of each row once a step"),
        Column("kv_blocks", "gauge", "KV cache blocks"),
        Column("kv_blocks_free", "gauge", "KV cache blocks that nobody uses"),
        Column("cache_queries", "counter", "Requests for which the prefix cache was asked"),
        Column("cache_query_tokens", "counter", "Prompt tokens of these requests"),
        Column("cache_hit_tokens", "counter", "Prompt tokens of these requests that the prefix cache had"),
        Column("draft_tokens", "counter", "Drafts that were verified"),
        Column("accepted_draft_tokens", "counter", "Drafts that were accepted"),
        Column("transfers_open", "gauge", "KV transfers on their way"),
        Column("transfers_failed", "counter", "KV transfers that failed, so that a prompt was prefilled here"),
        Column("transfer_reports_dropped", "counter", "Reports about KV transfers that fit none"),
        Column(
            "alignment_held",
            "counter",
            "Answers of the group that prefills are to wait, those to early questions included",
        ),
        Column("alignment_errors", "counter", "Plans on which the engines did not agree, so that prefills went ahead"),
        Column("late_results", "counter", "Results of rows that had ended or been preempted"),
        Column("token_ring_tokens", "gauge", "Tokens in the ring to output"),
        Column("kv_event_queue_depth", "gauge", "Batches of KV events that the publisher has not taken yet"),
        Column("kv_event_dropped_channel", "counter", "Batches of KV events for which the publisher had no room"),
        Column("kv_event_resyncs", "counter", "Times that the publisher was told the whole cache, first or again"),
    ),
    "executor": _EVERY_ROLE
    + (
        Column("num_blocks", "info", "KV cache blocks of its memory"),
        Column("max_model_len", "info", "Tokens that a request may have, prompt and output together"),
        Column("vocab_size", "info", "Token ids are below this"),
        Column("step_began", "info", "Monotonic clock at the beginning of the step that runs, ns; 0 between steps"),
        Column("step", "info", "Number of the step that began last"),
        Column("step_rows", "info", "Its rows"),
        Column("step_tokens", "info", "Its tokens"),
        Column("steps_run", "counter", "Steps run"),
        Column("step_seconds", "counter", "Time spent in steps"),
        Column("row_errors", "counter", "Rows that failed"),
    ),
    "output": _EVERY_ROLE
    + (
        Column("detokenized_tokens", "counter", "Tokens turned into text"),
        Column("stop_strings", "counter", "Requests ended by a stop string"),
        Column("unknown_requests", "counter", "Rows of requests that had ended here"),
    ),
    "publisher": _EVERY_ROLE
    + (
        Column("incarnation", "info", "A random number of this process; 0: it publishes nothing"),
        Column("kv_event_port", "info", "The port at which KV events are published"),
        Column("kv_event_replay_port", "info", "The port at which missed ones are had"),
        Column("kv_event_taken", "info", "Batches taken from the scheduler"),
        Column("kv_event_wishes", "info", "Times that it has wished to be told the whole cache again"),
        Column("kv_event_gaps", "counter", "Times that a batch of the scheduler was missing or made no sense"),
        Column("kv_event_batches", "counter", "Batches of KV events numbered"),
        Column("kv_event_events", "counter", "KV events in these batches"),
        Column("kv_event_bytes", "counter", "Bytes of these batches"),
        Column(
            "kv_event_dropped_send", "counter", "Times that a subscriber's queue filled up, so that he misses batches"
        ),
        Column("kv_event_encode_errors", "counter", "Batches that could not be encoded and were sent empty"),
        Column("kv_event_replay_requests", "counter", "Replays asked for"),
        Column("kv_event_replay_batches", "counter", "Batches replayed"),
        Column("kv_event_replay_dropped", "counter", "Replays given up because their reader took nothing"),
        Column("kv_event_bad_requests", "counter", "Requests for a replay that were none, or too many"),
        Column("kv_event_snapshot_replies", "counter", "Replays that began with a snapshot"),
        Column("kv_event_seq", "gauge", "The number of the next batch"),
        Column("kv_event_ring_oldest", "gauge", "The number of the oldest batch that is kept"),
    ),
    "supervisor": _EVERY_ROLE,
}


class Row:
    """A process's own row. Columns are set and read by name."""

    def __init__(self, role: str, words: np.ndarray) -> None:
        self.role = role
        self._words = words
        self._place = {column.name: place for place, column in enumerate(COLUMNS[role])}

    def __getitem__(self, name: str) -> int:
        return int(self._words[self._place[name]])

    def __setitem__(self, name: str, value: int) -> None:
        self._words[self._place[name]] = value

    def add(self, name: str, value: int = 1) -> None:
        self._words[self._place[name]] += value

    @property
    def life(self) -> int:
        """Which process of this name has the row: 0 for the first one, see ipc/wire.py."""
        return self["restarts"]

    def begin(self) -> None:
        """A process begins: what the one before it measured and counted is nothing now."""
        for column in COLUMNS[self.role]:
            if column.kind != "info" and column.name != "restarts":
                self[column.name] = 0
        self.enter(State.STARTING)

    def live(self, life: int) -> None:
        """Whatever others send from now on is meant for this process."""
        self["restarts"] = life

    def beat(self) -> None:
        """Say that the main loop has come round."""
        self["heartbeat"] = time.monotonic_ns()

    @property
    def state(self) -> State:
        return State(self["state"])

    def enter(self, state: State) -> None:
        """Say what this process is doing."""
        self["state"] = state
        self["pid"] = os.getpid()
        self.beat()


def board_bytes(processes: int) -> int:
    """The memory that a board with so many rows takes."""
    return 8 * _WORDS * processes


class Board:
    """All rows, over zeroed memory of board_bytes(len(names)) bytes. A name is a role and a number."""

    def __init__(self, memory: memoryview | bytearray, names: Sequence[str]) -> None:
        words = np.frombuffer(memory, np.int64, _WORDS * len(names)).reshape(len(names), _WORDS)
        self.rows = {name: Row(role_of(name), row) for name, row in zip(names, words, strict=True)}

    def row(self, name: str) -> Row:
        return self.rows[name]

    def of_role(self, role: str) -> list[Row]:
        """The rows of all processes of a role, in order."""
        return [row for row in self.rows.values() if row.role == role]
