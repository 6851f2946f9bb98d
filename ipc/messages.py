"""Every message that travels between processes, on one page, in the order of the four strokes.

Messages are frozen. A `bytes` field that is called a column holds a little-endian array with one entry
per row of the message. Token arrays do not travel in messages: they lie in rings and step slots, and a
message says where. Where a type does not bound a number enough, `__post_init__` does, and raises
ValueError; the codec makes a BadMessage of it.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..common.types import Finish, State

MAX_TOKENS = 2**31 - 1
"""No count of tokens, blocks or ids is above this: they are int32 in shared memory."""

# Ingest to scheduler


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the executor chooses a row's tokens. `temperature` 0 is greedy; 0, 1 and 0 switch the filters off.

    biases[i] is added to the logit of token biased[i].
    """

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    seed: int
    biased: tuple[int, ...] = ()
    biases: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if len(self.biased) != len(self.biases):
            raise ValueError(f"{len(self.biases)} biases for {len(self.biased)} tokens")


@dataclass(frozen=True, slots=True)
class Limits:
    """When the scheduler ends a request. `max_tokens` is at least 1."""

    max_tokens: int
    min_tokens: int
    ignore_eos: bool
    stop_token_ids: tuple[int, ...]

    def __post_init__(self) -> None:
        if not 0 <= self.min_tokens <= self.max_tokens <= MAX_TOKENS or self.max_tokens == 0:
            raise ValueError(f"between {self.min_tokens} and {self.max_tokens} tokens")


@dataclass(frozen=True, slots=True)
class Submit:
    """A request. Its prompt lies in the prompt ring at `prompt_at`; `ticket` is an encoded Ticket for output."""

    rid: int
    epoch: int
    prompt_at: int
    prompt_tokens: int
    sampling: Sampling
    limits: Limits
    ticket: bytes


@dataclass(frozen=True, slots=True)
class Abort:
    """End a request for `reason`. With STOP, a stop string was found in its output, after `keep` tokens."""

    rid: int
    epoch: int
    reason: Finish
    keep: int


# Scheduler to executor, and back


@dataclass(frozen=True, slots=True)
class NewRow:
    """A request takes a row of the executor: from now on the row samples like this.

    Below position `masked_until` the row never samples one of `masked_token_ids` (min_tokens).
    """

    row: int
    sampling: Sampling
    masked_until: int = 0
    masked_token_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class StepPlan:
    """One step. Its arrays lie in step slot `slot` (see ipc/plan.py); these are their lengths."""

    step: int
    slot: int
    rows: int
    tokens: int
    blocks: int
    new_rows: tuple[NewRow, ...]


@dataclass(frozen=True, slots=True)
class Hello:
    """The executor's first message: what it can hold. `vocab_size` bounds the token ids."""

    num_blocks: int
    block_size: int
    max_model_len: int
    vocab_size: int
    eos_token_ids: tuple[int, ...]

    def __post_init__(self) -> None:
        sizes = (self.num_blocks, self.block_size, self.max_model_len, self.vocab_size)
        if not all(0 < size <= MAX_TOKENS for size in sizes):
            raise ValueError(f"sizes of {sizes}")
        if not all(0 <= token < self.vocab_size for token in self.eos_token_ids):
            raise ValueError(f"EOS ids {self.eos_token_ids} in a vocabulary of {self.vocab_size}")


@dataclass(frozen=True, slots=True)
class RowError:
    """A row of a step that failed, with the cause in words. Its sampled token is void."""

    index: int
    cause: str


@dataclass(frozen=True, slots=True)
class StepDone:
    """A step has run; the sampled tokens lie in its slot."""

    step: int
    slot: int
    errors: tuple[RowError, ...]


# Scheduler to output


@dataclass(frozen=True, slots=True)
class Opened:
    """The first word about a request, before or beside its first tokens."""

    rid: int
    epoch: int
    cached_tokens: int
    ticket: bytes


@dataclass(frozen=True, slots=True)
class Ended:
    """The last word about a request.

    After STOP its last token is the EOS token or a stop id, and `stop_token` is that stop id, or -1 for
    EOS. `detail` says more about ERROR and REJECTED.
    """

    rid: int
    finish: Finish
    stop_token: int
    detail: str


@dataclass(frozen=True, slots=True)
class Emit:
    """New tokens of some requests, laid one after the other in the token ring at `tokens_at`.

    Columns: `rids` int64, `counts` int32 (how many of the tokens belong to each, in order).
    """

    opened: tuple[Opened, ...]
    rids: bytes
    counts: bytes
    tokens_at: int
    tokens: int
    ended: tuple[Ended, ...]


# Output to ingest


@dataclass(frozen=True, slots=True)
class Ticket:
    """What output must know about a request; travels inside Submit and Opened, encoded."""

    reply_to: str
    stop: tuple[str, ...]
    include_stop: bool
    skip_special: bool
    min_tokens: int


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of a request as its client sees it. `stop_string` or `stop_token` (or neither) is the stop reason."""

    rid: int
    finish: Finish
    stop_string: str | None
    stop_token: int
    tokens: int
    cached_tokens: int
    detail: str


@dataclass(frozen=True, slots=True)
class Text:
    """New text of some requests. Columns: `rids` int64, `counts` int32 (tokens behind each delta).

    `token_ids` holds their ids (int32), one request after the other. A request that ends has its last
    delta in the same message or an earlier one.
    """

    rids: bytes
    counts: bytes
    deltas: tuple[str, ...]
    token_ids: bytes
    endings: tuple[Ending, ...]


# Scheduler to publisher


@dataclass(frozen=True, slots=True)
class KvBatch:
    """The changes of the KV cache in one step, numbered from 0 without a gap; `events` is encoded."""

    number: int
    events: bytes


# Supervisor and everybody


@dataclass(frozen=True, slots=True)
class Report:
    """A process tells the supervisor what it is doing, in words an operator reads."""

    state: State
    text: str


@dataclass(frozen=True, slots=True)
class Drain:
    """Take no new requests; report STOPPED when the last one has ended."""


FROM_INGEST = (Submit, Abort)
FROM_EXECUTOR = (Hello, StepDone)

Message = Submit | Abort | StepPlan | Hello | StepDone | Emit | Text | KvBatch | Report | Drain
Part = Sampling | Limits | NewRow | RowError | Opened | Ended | Ending | Ticket
