"""Every message that travels between processes, on one page, in the order of the four strokes.

Messages are frozen. A `bytes` field that is called a column holds a little-endian array with one entry
per row of the message. Token arrays do not travel in messages: they lie in rings and step slots, and a
message says where. Where a type does not bound a number enough, `__post_init__` does, and raises
ValueError; the codec makes a BadMessage of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..common.types import MAX_LOGPROBS, Finish, KvKind, State, TransferAction, TransferOutcome

MAX_TOKENS = 2**31 - 1
"""No count of tokens, blocks or ids is above this: they are int32 in shared memory."""

NO_LOGPROBS = -1

DIGEST_BYTES = 32

# Ingest to scheduler


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the executor chooses tokens. `temperature` 0 is greedy; 0, 1 and 0 switch the filters off.

    biases[i] is added to the logit of token biased[i]. `logprobs`: for each generated token its log-probability
    and those of so many best tokens, or NO_LOGPROBS; `prompt_logprobs`: the same for the tokens of the prompt.
    Penalties of 1, 0 and 0 are off. `grammar`: what the text must obey, as procs/grammar.py compiles it, or nothing.
    """

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    biased: tuple[int, ...] = ()
    biases: tuple[float, ...] = ()
    logprobs: int = NO_LOGPROBS
    prompt_logprobs: int = NO_LOGPROBS
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    grammar: str = ""

    def __post_init__(self) -> None:
        if len(self.biased) != len(self.biases):
            raise ValueError(f"{len(self.biases)} biases for {len(self.biased)} tokens")
        if not all(NO_LOGPROBS <= most <= MAX_LOGPROBS for most in (self.logprobs, self.prompt_logprobs)):
            raise ValueError(f"{self.logprobs} and {self.prompt_logprobs} best tokens")
        added = (self.presence_penalty, self.frequency_penalty)
        if not 0 < self.repetition_penalty < math.inf or not all(map(math.isfinite, added)):
            raise ValueError(f"penalties of {self.repetition_penalty}, {added[0]} and {added[1]}")

    @property
    def penalises(self) -> bool:
        """Whether what a request has said changes what it will say, beyond the model."""
        return self.repetition_penalty != 1 or self.presence_penalty != 0 or self.frequency_penalty != 0

    @property
    def needs_history(self) -> bool:
        """Whether who samples must know what was generated."""
        return bool(self.grammar) or self.penalises


@dataclass(frozen=True, slots=True)
class Limits:
    """When the scheduler ends a request. With `max_tokens` 0 its prompt is prefilled and that is all.

    `stop_sequences`: generated tokens that end in one of them end the request.
    """

    max_tokens: int
    min_tokens: int
    ignore_eos: bool
    stop_token_ids: tuple[int, ...]
    stop_sequences: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.min_tokens <= self.max_tokens <= MAX_TOKENS:
            raise ValueError(f"between {self.min_tokens} and {self.max_tokens} tokens")
        if () in self.stop_sequences:
            raise ValueError("an empty stop sequence")


@dataclass(frozen=True, slots=True)
class Image:
    """An image (or audio, or video) that stands in a prompt for the tokens offset..offset+tokens-1.

    `identity` names its content; `data` is what the executor makes of it, opaque to everybody else.
    """

    identity: str
    offset: int
    tokens: int
    data: bytes

    def __post_init__(self) -> None:
        if not (0 <= self.offset < MAX_TOKENS and 0 < self.tokens < MAX_TOKENS):
            raise ValueError(f"{self.tokens} tokens at {self.offset}")


@dataclass(frozen=True, slots=True)
class CacheKeys:
    """What tells blocks of the same tokens apart, beside images: an adapter, and a tenant's salt. Empty: none."""

    adapter: str = ""
    adapter_path: str = ""
    salt: str = ""


@dataclass(frozen=True, slots=True)
class RemoteKv:
    """A request whose prefill or decode is done by another engine.

    A consumer (`prefilled`) receives the KV of its prompt, which `host` holds in `blocks` (a column of int32)
    under `transfer`; `first_token` (or -1) and `drafts` were generated there. A producer (`decoded`)
    keeps its blocks until they were fetched.
    """

    prefilled: bool
    decoded: bool
    host: str = ""
    transfer: int = 0
    blocks: bytes = b""
    first_token: int = -1
    drafts: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not all(-1 <= token < MAX_TOKENS for token in (self.first_token, *self.drafts)) or -1 in self.drafts:
            raise ValueError(f"a first token of {self.first_token} and {len(self.drafts)} drafts")
        if len(self.blocks) % 4 or self.transfer < 0:
            raise ValueError(f"{len(self.blocks)} bytes of blocks in transfer {self.transfer}")


@dataclass(frozen=True, slots=True)
class Submit:
    """A prompt and its choices: choice i is request rids[i] and draws with seeds[i].

    The prompt lies in the prompt ring at `prompt_at`. `digests` has the SHA-256 chain (see
    ipc/block_hash.py) of its full blocks, 32 bytes each, or nothing without a prefix cache. A lower
    `priority` goes first. `timeout_s` 0 is none. `ticket` is an encoded Ticket for output. `mrope` is a column of
    positions [3, prompt_tokens] for models that have three, which go on with `mrope_delta` more than the
    place.
    """

    rids: tuple[int, ...]
    seeds: tuple[int, ...]
    epoch: int
    prompt_at: int
    prompt_tokens: int
    digests: bytes
    keys: CacheKeys
    sampling: Sampling
    limits: Limits
    priority: int
    timeout_s: float
    ticket: bytes
    images: tuple[Image, ...] = ()
    mrope: bytes = b""
    mrope_delta: int = 0
    remote: RemoteKv | None = None

    def __post_init__(self) -> None:
        if not self.rids or len(self.rids) != len(self.seeds) or len(set(self.rids)) != len(self.rids):
            raise ValueError(f"{len(self.rids)} ids and {len(self.seeds)} seeds")
        if len(self.digests) % DIGEST_BYTES or not 0 <= self.timeout_s < math.inf:
            raise ValueError(f"{len(self.digests)} bytes of digests, {self.timeout_s} s")
        if len(self.mrope) not in (0, 12 * self.prompt_tokens):
            raise ValueError(f"{len(self.mrope)} bytes of positions for {self.prompt_tokens} tokens")
        if any(image.offset + image.tokens > self.prompt_tokens for image in self.images):
            raise ValueError("an image beyond the end of the prompt")


@dataclass(frozen=True, slots=True)
class Abort:
    """End a request for `reason`. With STOP, a stop string was found in its output, after `keep` tokens."""

    rid: int
    epoch: int
    reason: Finish
    keep: int


@dataclass(frozen=True, slots=True)
class ResetCache:
    """Forget the prefix cache. The answer goes the way of a request's: STOP when it is done, or REJECTED.

    While requests run it is rejected, or with `force` done as soon as they have ended; until then none is admitted.
    """

    rid: int
    force: bool
    ticket: bytes


# Ingest to ingest


@dataclass(frozen=True, slots=True)
class AbortById:
    """A client of the sender wants a request to end that is the receiver's. `number` is for the answer."""

    number: int
    request_id: str


@dataclass(frozen=True, slots=True)
class AbortAnswer:
    """Whether there was such a request, which ends now."""

    number: int
    found: bool


# Scheduler to executor, and back


@dataclass(frozen=True, slots=True)
class NewRow:
    """A request takes a row of the executor: from now on the row samples like this.

    Below position `masked_until` the row never samples one of `masked_token_ids` (min_tokens). `state_slot`
    is where its recurrent state lies, or -1. For sampling that needs history: `seen` are the different tokens of the
    prompt, if they are penalised, and `generated` those generated before it had this row (columns of int32).
    """

    row: int
    seed: int
    sampling: Sampling
    masked_until: int = 0
    masked_token_ids: tuple[int, ...] = ()
    state_slot: int = -1
    seen: bytes = b""
    generated: bytes = b""

    def __post_init__(self) -> None:
        if len(self.seen) % 4 or len(self.generated) % 4:
            raise ValueError(f"{len(self.seen)} and {len(self.generated)} bytes of tokens")


@dataclass(frozen=True, slots=True)
class MediaChunk:
    """What a chunk needs beside its token ids; `index` is its place among the rows of the plan.

    `mrope` is a column of positions [3, count], or empty. `images` overlap the chunk; one that an earlier chunk
    brought comes without data.
    """

    index: int
    mrope: bytes
    images: tuple[Image, ...]


@dataclass(frozen=True, slots=True)
class StepPlan:
    """One step. Its arrays lie in step slot `slot` (see ipc/plan.py); these are their lengths.

    Before the step state slots are copied: `state_copies` is a column of pairs (from, to), int32.
    """

    step: int
    slot: int
    rows: int
    tokens: int
    blocks: int
    new_rows: tuple[NewRow, ...]
    media: tuple[MediaChunk, ...] = ()
    state_copies: bytes = b""


@dataclass(frozen=True, slots=True)
class KvTransfer:
    """Start to move the KV of a request between its `blocks` (a column of int32) and another engine, or cancel it."""

    rid: int
    epoch: int
    action: TransferAction
    blocks: bytes = b""
    remote: RemoteKv | None = None


@dataclass(frozen=True, slots=True)
class TransferReport:
    """What became of a transfer, from one of the executor's workers. `detail` says more about FAILED."""

    rid: int
    epoch: int
    outcome: TransferOutcome
    worker: int = 0
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Hello:
    """The executor's first message: what it can hold. `vocab_size` bounds the token ids.

    `state_slots` is above 0 for a model with recurrent state, each request of which takes one.
    """

    num_blocks: int
    block_size: int
    max_model_len: int
    vocab_size: int
    eos_token_ids: tuple[int, ...]
    state_slots: int = 0

    def __post_init__(self) -> None:
        sizes = (self.num_blocks, self.block_size, self.max_model_len, self.vocab_size)
        if not all(0 < size <= MAX_TOKENS for size in sizes) or not 0 <= self.state_slots <= MAX_TOKENS:
            raise ValueError(f"sizes of {sizes} and {self.state_slots}")
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
class Detail:
    """More about how a request ended: `text` for an operator; where its KV lies, if another engine fetches it."""

    rid: int
    text: str
    kv: RemoteKv | None = None


@dataclass(frozen=True, slots=True)
class Endings:
    """The last word about some requests. Columns: `rids` int64, `finishes` int8 (Finish), `stop_tokens` int32.

    After STOP a request's last token is the EOS token or a stop id, and its stop token is that stop id, or -1
    for EOS and for a stop sequence. Few endings have a detail.
    """

    rids: bytes
    finishes: bytes
    stop_tokens: bytes
    details: tuple[Detail, ...]


NO_ENDINGS = Endings(b"", b"", b"", ())


@dataclass(frozen=True, slots=True)
class Logprobs:
    """Log-probabilities of tokens of some requests, before temperature, biases and filters.

    Columns: `rids` int64; `counts` int32, of how many tokens of each; `tops` int32, how many best tokens there
    are for each of these tokens. `values` has, token by token, words of 32 bits: the token's log-probability
    (float32), `top` ids (int32), `top` log-probabilities (float32), best first.
    """

    rids: bytes
    counts: bytes
    tops: bytes
    values: bytes


NO_VALUES = Logprobs(b"", b"", b"", b"")


@dataclass(frozen=True, slots=True)
class Emit:
    """New tokens of some requests, laid one after the other in the token ring at `tokens_at`.

    Columns: `rids` int64, `counts` int32 (how many of the tokens belong to each, in order). `logprobs` are those
    of the new tokens of the requests that want them, `prompt_logprobs` those of a prompt from its second token
    on, as far as they are new.
    """

    opened: tuple[Opened, ...]
    rids: bytes
    counts: bytes
    tokens_at: int
    tokens: int
    ended: Endings = NO_ENDINGS
    logprobs: Logprobs = NO_VALUES
    prompt_logprobs: Logprobs = NO_VALUES


# Output to ingest


@dataclass(frozen=True, slots=True)
class Ticket:
    """What output must know about a request; travels inside Submit and Opened, encoded.

    `markers` are control tokens that are in the text even with `skip_special`.
    """

    reply_to: str
    stop: tuple[str, ...]
    include_stop: bool
    skip_special: bool
    min_tokens: int
    markers: tuple[int, ...] = ()


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
    delta in the same message or an earlier one. `logprobs` are cut where the tokens are.
    """

    rids: bytes
    counts: bytes
    deltas: tuple[str, ...]
    token_ids: bytes
    endings: tuple[Ending, ...]
    logprobs: Logprobs = NO_VALUES
    prompt_logprobs: Logprobs = NO_VALUES


# Scheduler to publisher


@dataclass(frozen=True, slots=True)
class KvKey:
    """One of the extra keys of a block: its kind ("lora", "mm", "cache_salt" or "prompt_embeds") and what the kind has.

    `block` is the place of the block among those of its change; `place` that of an image against the block.
    """

    block: int
    kind: str
    name: str = ""
    place: int = 0
    digest: bytes = b""


@dataclass(frozen=True, slots=True)
class KvChange:
    """What has happened to some blocks of the KV cache. CLEARED is of all blocks, and has no columns.

    Columns: `digests`, 32 bytes of each block, parents before children where they are stored, behind them where they
    are removed. Stored blocks come in runs, each a part of one chain: `counts` (int32), how many blocks each run has;
    `parents`, the 32 bytes of the digest before each; `tokens` (int32), as many for each block. `keys` come
    in the order of their blocks.
    """

    kind: KvKind
    digests: bytes = b""
    counts: bytes = b""
    parents: bytes = b""
    tokens: bytes = b""
    keys: tuple[KvKey, ...] = ()

    def __post_init__(self) -> None:
        blocks, runs = len(self.digests) // DIGEST_BYTES, len(self.counts) // 4
        if len(self.digests) % DIGEST_BYTES or len(self.counts) % 4 or len(self.parents) != DIGEST_BYTES * runs:
            raise ValueError(f"{len(self.digests)} bytes of digests in {runs} runs")
        if len(self.tokens) % (4 * blocks) if blocks else self.tokens:
            raise ValueError(f"{len(self.tokens)} bytes of tokens in {blocks} blocks")


@dataclass(frozen=True, slots=True)
class KvBatch:
    """Changes of the KV cache, in order, for the publisher with this `incarnation`.

    They are numbered from 0 without a gap in each `session`, a number that rises: in number 0 the first change is
    CLEARED, and the whole cache follows.
    """

    incarnation: int
    session: int
    number: int
    changes: tuple[KvChange, ...]


# Supervisor and everybody


@dataclass(frozen=True, slots=True)
class Report:
    """A process tells the supervisor what it is doing, in words an operator reads."""

    state: State
    text: str


@dataclass(frozen=True, slots=True)
class Drain:
    """Take no new requests; report STOPPED when the last one has ended."""


FROM_INGEST = (Submit, Abort, ResetCache)
FROM_SIBLING = (AbortById, AbortAnswer)
FROM_EXECUTOR = (Hello, StepDone, TransferReport)
TO_EXECUTOR = (StepPlan, KvTransfer)

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
