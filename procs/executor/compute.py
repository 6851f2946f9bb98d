"""What computes a model: hidden states of a step's tokens, and logits of some of them.

The runner knows no more than this of devices and kernels. A Compute owns the weights and the KV cache.
"""

from __future__ import annotations

from typing import Protocol

import torch

from .attention.backend import Backend
from .batch import Batch
from .kv_cache import KvCache
from .models.llama import Llama


class LogitSource(Protocol):
    """The last part of a model."""

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """[rows, hidden] to [rows, vocab_size]; the result is the caller's to change."""
        ...


class Compute(LogitSource, Protocol):
    """A loaded model with its KV cache."""

    def forward(self, batch: Batch) -> torch.Tensor:
        """Hidden states [tokens, hidden] of a step; the keys and values of its tokens are in the cache then."""
        ...


class TorchCompute:
    """With torch's own operators, in any dtype, on any processor: see Compute."""

    def __init__(self, model: Llama, cache: KvCache, backend: Backend) -> None:
        self._model = model
        self._cache = cache
        self._backend = backend

    def forward(self, batch: Batch) -> torch.Tensor:
        if len(batch.begun):
            self._cache.clear(torch.from_numpy(batch.begun))
        tokens, positions, slots = map(torch.from_numpy, (batch.tokens, batch.positions, batch.slots))
        return self._model.forward(tokens, positions, slots, self._cache, self._backend(batch.spans, self._cache))

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        return self._model.logits(hidden)
