"""Every message that travels between processes, a file for each pair of strokes, and the union of each direction here.

Messages are frozen. A `bytes` field that is called a column holds a little-endian array with one entry
per row of the message. Token arrays do not travel in messages: they lie in rings and step slots, and a
message says where. Where a type does not bound a number enough, `__post_init__` does, and raises
ValueError; the codec makes a BadMessage of it.
"""

from __future__ import annotations

from .answers import NO_ENDINGS, NO_VALUES, Detail, Emit, Ending, Endings, Logprobs, Opened, Text, Ticket
from .control import Began, Drain, Report
from .kv_events import KvBatch, KvChange, KvKey
from .limits import DIGEST_BYTES, MAX_TOKENS, NO_LOGPROBS
from .requests import Abort, AbortAnswer, AbortById, CacheKeys, Image, Limits, RemoteKv, ResetCache, Sampling, Submit
from .steps import Hello, KvTransfer, MediaChunk, NewRow, RowError, StepDone, StepPlan, TransferReport

__all__ = (
    "DIGEST_BYTES",
    "FROM_EXECUTOR",
    "FROM_INGEST",
    "FROM_SCHEDULER",
    "FROM_SIBLING",
    "MAX_TOKENS",
    "NO_ENDINGS",
    "NO_LOGPROBS",
    "NO_VALUES",
    "TO_EXECUTOR",
    "Abort",
    "AbortAnswer",
    "AbortById",
    "Began",
    "CacheKeys",
    "Detail",
    "Drain",
    "Emit",
    "Ending",
    "Endings",
    "Hello",
    "Image",
    "KvBatch",
    "KvChange",
    "KvKey",
    "KvTransfer",
    "Limits",
    "Logprobs",
    "MediaChunk",
    "Message",
    "NewRow",
    "Opened",
    "Part",
    "RemoteKv",
    "Report",
    "ResetCache",
    "RowError",
    "Sampling",
    "StepDone",
    "StepPlan",
    "Submit",
    "Text",
    "Ticket",
    "TransferReport",
)

FROM_INGEST = (Submit, Abort, ResetCache, Began)
FROM_SCHEDULER = (Emit, Began)
FROM_SIBLING = (AbortById, AbortAnswer)
FROM_EXECUTOR = (Hello, StepDone, TransferReport)
TO_EXECUTOR = (StepPlan, KvTransfer, Began)

Message = (
    Submit
    | Abort
    | ResetCache
    | StepPlan
    | KvTransfer
    | Hello
    | StepDone
    | TransferReport
    | Emit
    | Text
    | KvBatch
    | Report
    | Began
    | Drain
    | AbortById
    | AbortAnswer
)
Part = (
    Sampling
    | Limits
    | Image
    | CacheKeys
    | RemoteKv
    | NewRow
    | MediaChunk
    | RowError
    | Opened
    | Endings
    | Detail
    | KvKey
    | KvChange
    | Logprobs
    | Ending
    | Ticket
)
