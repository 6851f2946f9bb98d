"""From the scheduler to output, and from there to ingest: tokens, text, and how requests ended."""

from __future__ import annotations

from dataclasses import dataclass

from ...common.types import Finish
from .requests import RemoteKv


@dataclass(frozen=True, slots=True)
class Opened:
    """The first word about a request, before or beside its first tokens."""

    rid: int
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


@dataclass(frozen=True, slots=True)
class Ticket:
    """What output must know about a request; travels inside Submit and Opened, encoded.

    `markers` are control tokens that are in the text even with `skip_special`. `generated` (a column of int32): these
    tokens have been turned into text before, and the text has arrived: what comes now goes on behind them.
    """

    reply_to: str
    stop: tuple[str, ...]
    include_stop: bool
    skip_special: bool
    min_tokens: int
    markers: tuple[int, ...] = ()
    generated: bytes = b""

    def __post_init__(self) -> None:
        if len(self.generated) % 4:
            raise ValueError(f"{len(self.generated)} bytes of tokens")


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of a request as its client sees it. `stop_string` or `stop_token` (or neither) is the stop reason."""

    rid: int
    finish: Finish
    stop_string: str | None
    stop_token: int
    tokens: int
    detail: str


@dataclass(frozen=True, slots=True)
class Text:
    """New text of some requests. Columns: `rids` int64, `counts` int32 (tokens behind each delta).

    `token_ids` holds their ids (int32), one request after the other. A request that ends has its last
    delta in the same message or an earlier one. `logprobs` are cut where the tokens are. Of requests that have begun:
    `opened` int64, their ids; `cached_tokens` int32, how much of their prompts was found in the prefix cache.
    """

    rids: bytes
    counts: bytes
    deltas: tuple[str, ...]
    token_ids: bytes
    endings: tuple[Ending, ...]
    logprobs: Logprobs = NO_VALUES
    prompt_logprobs: Logprobs = NO_VALUES
    opened: bytes = b""
    cached_tokens: bytes = b""
