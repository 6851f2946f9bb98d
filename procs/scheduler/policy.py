"""How a scheduler plans: the choices that an operator or a test makes."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from ...ipc.block_hash import ROOT


class TwoBatch(enum.Enum):
    """When a rank has work for two micro-batches: never asked, two admittable prefills, or one long chunk."""

    OFF = enum.auto()
    BY_REQUEST = enum.auto()
    BY_TOKEN = enum.auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The scheduler's settings. Counts are of requests, tokens or steps; 0 switches a threshold or factor off.

    `headroom_lookahead` tokens are kept free for each running request. With `prefill_first` chunks are planned before
    decodes. Without `chunked` a prompt is prefilled whole. A fresh request waits `delay_factor` times the length of
    the last step with a prefill. `drafts` are the most of one row. `publish_events`: the block pool tells what it
    stores and removes. `root` is the digest before the first of every chain. With more than one of the `stages` of a
    pipeline a request is in one open step at a time: its next one needs what the last stage samples.
    """

    max_num_seqs: int
    max_num_batched_tokens: int
    pipeline_depth: int = 2
    headroom_lookahead: int = 64
    prefill_first: bool = False
    chunked: bool = True
    prefix_cache: bool = True
    long_prefill_threshold: int = 0
    delay_factor: float = 0.0
    drafts: int = 0
    publish_events: bool = False
    root: bytes = ROOT
    state_checkpoint_interval: int = 8192
    stages: int = 1
    two_batch: TwoBatch = TwoBatch.OFF
    two_batch_min_tokens: int = 8192
