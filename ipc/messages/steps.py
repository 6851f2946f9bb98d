"""Between the scheduler and its executor: steps, and transfers of KV."""

from __future__ import annotations

from dataclasses import dataclass

from ...common.types import TransferAction, TransferOutcome
from .limits import MAX_TOKENS
from .requests import Image, RemoteKv, Sampling


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
