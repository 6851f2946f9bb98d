"""From the scheduler to the publisher: changes of the KV cache."""

from __future__ import annotations

from dataclasses import dataclass

from ...common.types import KvKind
from .limits import DIGEST_BYTES


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
