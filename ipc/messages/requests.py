"""From ingest to the scheduler, and between ingests: requests, and what ends them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...common.types import MAX_LOGPROBS, Finish
from .limits import DIGEST_BYTES, MAX_TOKENS, NO_LOGPROBS


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

    The prompt lies in the prompt ring at `prompt_at`. A request that is handed over again, because whoever worked on it
    has died, goes on behind the `generated_tokens` that lie there behind its prompt. `digests` has the SHA-256 chain
    (see ipc/block_hash.py) of the prompt's full blocks, 32 bytes each, or nothing without a prefix cache. A lower
    `priority` goes first. `timeout_s` 0 is none. `ticket` is an encoded Ticket for output. `mrope` is a column of
    positions [3, prompt_tokens] for models that have three, which go on with `mrope_delta` more than the
    place.
    """

    rids: tuple[int, ...]
    seeds: tuple[int, ...]
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
    generated_tokens: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.generated_tokens <= max(0, self.limits.max_tokens - 1):
            raise ValueError(f"{self.generated_tokens} generated tokens and a limit of {self.limits.max_tokens}")
        if self.generated_tokens and len(self.rids) != 1:
            raise ValueError(f"{self.generated_tokens} tokens that were generated for {len(self.rids)} requests")
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
