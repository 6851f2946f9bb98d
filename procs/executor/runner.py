"""Runs step plans: the executor without wires.

Plans are run in the order in which they come; the results of one are in `rows` before the next begins.
So a plan may name tokens that the scheduler has not seen yet (flag LAST). Nothing that a plan's tokens or
a row's numbers hold can raise: such rows fail one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch

from ...common.config import Config
from ...common.machine import usable_cores
from ...ipc.messages import Hello, RowError, StepDone, StepPlan
from ...ipc.plan import StepSlot, checked_slot
from .attention.backend import Backend
from .attention.cpu import CpuAttention
from .batch import Batch, build_batch
from .kv_cache import KvCache
from .machine import available_memory
from .models.llama import Llama
from .rows import Rows
from .sampler import Sampled, sample
from .sizing import size_cache
from .weights.checkpoint import open_checkpoint, weight_bytes
from .weights.source import Weights

BACKENDS: dict[str, Backend] = {"cpu": CpuAttention}
"""What --backend names."""

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


class Runner:
    """A loaded model with its KV cache and rows, and the step slots it reads from and writes to."""

    def __init__(
        self, model: Llama, cache: KvCache, rows: Rows, slots: Sequence[StepSlot], backend: Backend, hello: Hello
    ) -> None:
        self.hello = hello
        self._slots = slots
        self._model = model
        self._cache = cache
        self._rows = rows
        self._backend = backend

    @torch.inference_mode()
    def run(self, plan: StepPlan) -> StepDone:
        """Run one step and leave the sampled tokens in its slot. Raises BadMessage for a plan that is none."""
        slot = checked_slot(plan, self._slots)
        for new in plan.new_rows:
            self._rows.admit(new)
        changes = slice(0, plan.blocks)
        self._rows.set_blocks(slot.block_row[changes], slot.block_index[changes], slot.block_id[changes])
        batch = build_batch(plan, slot, self._rows, self._cache.block_size)
        errors = self._unknown_tokens(batch)
        hidden = self._forward(batch)
        if len(batch.sampling):
            errors |= self._sample(batch, hidden, slot)
        return StepDone(plan.step, plan.slot, tuple(RowError(index, errors[index]) for index in sorted(errors)))

    def _unknown_tokens(self, batch: Batch) -> dict[int, str]:
        """Replace token ids outside the vocabulary; the causes by the rows' places in the plan."""
        vocab_size = self.hello.vocab_size
        unknown = (batch.tokens < 0) | (batch.tokens >= vocab_size)
        if not unknown.any():
            return {}
        places = np.flatnonzero(unknown)
        owners = np.searchsorted(batch.spans.first, places, side="right") - 1
        errors = {
            int(batch.order[owner]): f"token {batch.tokens[place]} is outside the vocabulary of {vocab_size}"
            for place, owner in zip(places, owners, strict=True)
        }
        batch.tokens[unknown] = 0
        return errors

    def _forward(self, batch: Batch) -> torch.Tensor:
        if len(batch.begun):
            self._cache.clear(torch.from_numpy(batch.begun))
        tokens, positions, slots = map(torch.from_numpy, (batch.tokens, batch.positions, batch.slots))
        attention = self._backend(batch.spans, self._cache)
        return self._model.forward(tokens, positions, slots, self._cache, attention)

    def _sample(self, batch: Batch, hidden: torch.Tensor, slot: StepSlot) -> dict[int, str]:
        """Sample the rows that want it; the causes of those that failed by their places in the plan."""
        logits = self._model.logits(hidden[torch.from_numpy(batch.last)])
        rows, positions = batch.rows[batch.sampling], batch.spans.length[batch.sampling]
        logits = self._rows.adjust(logits, rows, positions)
        sampled: Sampled = sample(logits, self._rows.rules.of(rows), positions)
        self._rows.last[rows] = sampled.tokens
        places = batch.order[batch.sampling]
        slot.sampled[places] = sampled.tokens
        return {int(place): "the logits are not finite" for place in places[sampled.failed]}


def load_runner(config: Config, slots: Sequence[StepSlot], progress: Callable[[float], None]) -> Runner:
    """Open the model, size its cache, load the weights. Raises ModelError, ConfigError or ResourceError.

    `progress` is told what part of the weights is loaded, 0..1.
    """
    cores = config.threads or usable_cores()
    checkpoint = open_checkpoint(Path(config.model))
    model_config, dtype = checkpoint.config, _DTYPES[config.dtype]
    size = weight_bytes(checkpoint, dtype.itemsize)
    sizes = size_cache(config, model_config, size, dtype.itemsize, available_memory())
    with torch.inference_mode():
        model = Llama(model_config, Weights(checkpoint, dtype, progress), sizes.max_model_len, cores)
        cache = KvCache(model_config, sizes.num_blocks, config.block_size, dtype)
    torch.set_num_threads(cores)  # after loading, whose threads have set this to one
    rows = Rows(config.max_num_seqs, -(-sizes.max_model_len // config.block_size))
    hello = Hello(
        num_blocks=sizes.num_blocks,
        block_size=config.block_size,
        max_model_len=sizes.max_model_len,
        vocab_size=model_config.vocab_size,
        eos_token_ids=model_config.eos_token_ids,
    )
    return Runner(model, cache, rows, slots, BACKENDS[config.backend], hello)
